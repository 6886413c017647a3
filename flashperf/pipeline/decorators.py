"""What happens on the host before a step: masks rebuilt. Saving its state after it is in ``checkpoint``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from flashperf.pipeline.engine import Engine
from flashperf.pipeline.program import Program


def rebuild_mask(engine: Engine, program: Program, window: int) -> Callable[[], None]:
    """The host work of ``preprocessing=rebuilt``: positions to an additive mask, written into the step's buffer.

    Boolean causal mask over the padded width, window, conversion to float, expansion and copy: the steps of
    transformers' ``_prepare_4d_causal_attention_mask`` and of its sliding-window twin, in NumPy.
    """
    mask, position = engine.host(program.mask), program.inputs.host_position

    def rebuild() -> None:
        width = program.inputs.width
        keys = np.arange(width)
        allowed = keys[None, :] <= position[:, None]
        if window:
            allowed &= keys[None, :] > position[:, None] - window
        inverted = 1.0 - allowed.astype(np.float32)
        additive = np.where(inverted.astype(bool), np.float32(-np.inf), inverted)
        mask[:, :width] = additive
        engine.upload(program.mask)

    return rebuild


@dataclass(frozen=True)
class HostAction:
    """Work of a step on the host that a prediction must count like a kernel call."""

    key: str
    run: Callable[[], None]


def mask_action(engine: Engine, program: Program, window: int) -> HostAction:
    """``rebuild_mask`` with its key."""
    return HostAction(mask_key(program, window), rebuild_mask(engine, program, window))


def mask_key(program: Program, window: int) -> str:
    """Names the rebuilding of a program's mask, with its size."""
    return f"host_mask({'x'.join(map(str, program.mask.shape))},window={window})"
