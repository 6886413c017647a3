"""Which model: the trained one, or a shape with random weights."""

from __future__ import annotations

import numpy as np

from flashperf.errors import UserError
from flashperf.pipeline.config import PRESETS, SMALL, ModelConfig
from flashperf.pipeline.weights import load_weights, random_weights, small_weights_path
from flashperf.suggest import unknown_name

MODELS: tuple[str, ...] = ("small", *(f"shape:{name}" for name in PRESETS))


def model_config(model: str) -> ModelConfig:
    """``small`` or ``shape:PRESET``. Raises UserError with the nearest names."""
    if model not in MODELS:
        raise UserError(unknown_name("model", model, MODELS))
    return SMALL if model == "small" else PRESETS[model.removeprefix("shape:")]


def load_model(model: str, seed: int = 0) -> tuple[ModelConfig, dict[str, np.ndarray]]:
    """The configuration and float32 weights of ``small`` (committed) or ``shape:PRESET`` (random from the seed)."""
    config = model_config(model)
    if model == "small":
        return config, load_weights(small_weights_path(), config)
    return config, random_weights(config, seed)


def has_quality(model: str) -> bool:
    """Whether bits per byte mean anything: random weights know no English."""
    return model == "small"
