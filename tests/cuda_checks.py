"""What a test case of the CUDA kernels is: launches, and outputs with a float64 reference and an error bound.

Bounds: a sum of k products in f32, in any order, is within k u of the sum of magnitudes; operands that a
variant rounds first add their own unit roundoff twice; the result is rounded once more to its type.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from flashperf import dtypes
from flashperf.emulator import Launch

ROUNDOFF = {**dtypes.UNIT_ROUNDOFF, "tf32": 2.0**-11}


@dataclass
class Expected:
    """An output array, the values that it must have, and how far each may be off.

    A reference may be a function: of other outputs, as they are after the launches.
    """

    array: np.ndarray
    dtype: str
    reference: np.ndarray | Callable[[], np.ndarray]
    bound: np.ndarray | float
    relative: float = 0.0

    def check(self) -> None:
        got = dtypes.widen(self.array, self.dtype)
        assert np.isfinite(got).all(), "an element was not written, or is not a number"
        reference = self.reference() if callable(self.reference) else self.reference
        error = np.abs(got - reference) - (self.bound + self.relative * np.abs(reference))
        worst = np.unravel_index(error.argmax(), error.shape)
        assert error[worst] <= 0, f"{got[worst]} for {reference[worst]} at {worst}: {error[worst]} too far"


Built = tuple[list[Launch], list[Expected]]


@dataclass(frozen=True)
class CudaCase:
    """One set of launches of a mechanism's ``.cu`` file."""

    mechanism: str
    label: str
    build: Callable[[], Built]

    @property
    def id(self) -> str:
        return f"{self.mechanism}/{self.label}"


def values(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    """Normal values with an offset and an outlier, rounded to the type."""
    rng = np.random.default_rng([seed, *shape])
    x = rng.standard_normal(shape) + 0.1
    x.flat[rng.integers(x.size)] = 8.0
    return dtypes.cast(x.astype(np.float32), dtype)


def unset(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    array = np.empty(shape, dtypes.NUMPY_TYPES[dtype])
    dtypes.poison(array)
    return array
