"""Constants of a step that are no weights: rotary angles, and the causal mask of every position."""

from __future__ import annotations

from typing import Any

import numpy as np

from flashperf.pipeline.config import ModelConfig
from flashperf.pipeline.storage import WeightStore


def rope_tables(weights: WeightStore, config: ModelConfig, capacity: int) -> tuple[Any, Any]:
    """cos and sin [capacity, head_dim / 2] of the rotary positions, rotate-half convention."""
    half = config.head_dim // 2
    frequency = config.rope_theta ** (-np.arange(half) / half)
    angle = np.arange(capacity)[:, None] * frequency
    shape = (capacity, half)
    cos = weights.table("cos", shape, "f32", lambda: np.cos(angle).astype(np.float32))
    sin = weights.table("sin", shape, "f32", lambda: np.sin(angle).astype(np.float32))
    return cos, sin


def mask_table(weights: WeightStore, capacity: int, window: int) -> Any:
    """``causal_table`` as a kept array."""
    make = lambda: causal_table(capacity, window)  # noqa: E731
    return weights.table(f"mask{window}", (capacity, capacity), "f32", make)


def causal_table(capacity: int, window: int) -> np.ndarray:
    """Additive mask f32 [capacity, capacity]: row p lets position p see keys 0..p, the last ``window`` if > 0."""
    behind = np.arange(capacity)[:, None] - np.arange(capacity)
    seen = (behind >= 0) & ((behind < window) if window else True)
    return np.where(seen, np.float32(0), np.float32(-np.inf))
