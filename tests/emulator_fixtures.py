"""What the tests of the CUDA emulator share: fixture modules, thread orders, outputs that start unset."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from flashperf.emulator import Module

FIXTURES = Path(__file__).parent / "emulator"
ORDERS = ("forward", "reverse", "random:1", "random:2")
LANES = np.arange(32)


@cache
def module(name: str) -> Module:
    return Module(FIXTURES / f"{name}.cu")


def unset(*shape: int, dtype: type = np.float32) -> np.ndarray:
    """An output full of NaN, or of -1 in the integer types."""
    return np.full(shape, np.nan if np.issubdtype(dtype, np.floating) else -1).astype(dtype)
