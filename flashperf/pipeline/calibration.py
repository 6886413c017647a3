"""Static INT8 scales: the largest input of every product of the MLP, over text that is not what is measured.

What an observer records in a calibration run: one scale per product, for all tokens. Values beyond the largest
that was seen are clipped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from flashperf.pipeline.config import ModelConfig
from flashperf.pipeline.reference import attention, rms_norm, sigmoid

CALIBRATION_BYTES = 256


def calibration_of(
    weights: Mapping[str, np.ndarray], config: ModelConfig, tokens: Callable[[], np.ndarray]
) -> Callable[[str], float]:
    """``scale(weight name)`` in units of one INT8 step; the calibration runs when it is first asked for."""
    found: dict[str, float] = {}

    def scale(name: str) -> float:
        if not found:
            found.update(input_scales(weights, config, tokens()))
        return found[name]

    return scale


def input_scales(
    weights: Mapping[str, np.ndarray], config: ModelConfig, tokens: np.ndarray
) -> dict[str, float]:
    """absmax / 127 of what enters every gate, up and down product, in float64, by the weight's name."""
    x = weights["embed"][tokens].astype(np.float64)
    scales = {}
    for layer in range(config.layers):
        names = ("norm1", "qkv", "out", "norm2", "gate", "up", "down")
        block = {name: weights[f"layers.{layer}.{name}"].astype(np.float64) for name in names}
        x = x + attention(rms_norm(x, block["norm1"], config.eps) @ block["qkv"], config) @ block["out"]
        normed = rms_norm(x, block["norm2"], config.eps)
        gated = normed @ block["gate"]
        hidden = gated * sigmoid(gated) * (normed @ block["up"])
        for name, values in (("gate", normed), ("up", normed), ("down", hidden)):
            scales[f"layers.{layer}.{name}"] = float(np.abs(values).max()) / 127
        x = x + hidden @ block["down"]
    return scales
