"""Callables to compare, and a short comparison in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import flashperf
from flashperf.compare import CompareResult

X = np.random.default_rng(0).standard_normal((64, 96)).astype(np.float32)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def softmax_thrice(x: np.ndarray) -> np.ndarray:
    softmax(x)
    softmax(x)
    return softmax(x)


def quick(a: Callable[..., Any], b: Callable[..., Any], inputs: Any, **options: Any) -> CompareResult:
    """A short comparison in this process."""
    return flashperf.compare(a, b, inputs, **{"budget_s": 0.05, "processes": 1} | options)
