"""Arrays for kernel tests: outputs poisoned and fenced, so that a missed or a stray write shows."""

from __future__ import annotations

import numpy as np

from flashperf.dtypes import UNIT_ROUNDOFF, aligned_empty, cast, poison, widen

FENCE = 67  # elements on each side: more than one vector of any type, and odd

DTYPES = ("f32", "bf16", "f16")
#: Around every vector width (4, 8, 16) and every unrolled step (16, 32, 64).
LENGTHS = (1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 100, 129)


class Guarded:
    """``array`` of a shape inside a poisoned buffer; ``check`` fails if anything around it was written."""

    def __init__(self, shape: tuple[int, ...], dtype: str, values: np.ndarray | None = None) -> None:
        self.dtype = dtype
        size = int(np.prod(shape))
        self._buffer = aligned_empty((size + 2 * FENCE,), dtype)
        poison(self._buffer)
        self.array = self._buffer[FENCE : FENCE + size].reshape(shape)
        if values is not None:
            self.array[...] = values if values.dtype == self.array.dtype else cast(values, dtype)

    def check(self) -> None:
        around = np.concatenate([self._buffer[:FENCE], self._buffer[-FENCE:]]).view(np.uint8)
        assert (around == 0xFF).all(), "the kernel wrote outside its output"

    def values(self) -> np.ndarray:
        """The float64 values, after ``check``."""
        self.check()
        return widen(self.array, self.dtype)


def assert_close(got: np.ndarray, reference: np.ndarray, relative: float, absolute: float) -> None:
    """Elementwise |got - reference| <= absolute + relative * |reference|; NaN and inf must match."""
    special = ~np.isfinite(reference)
    np.testing.assert_array_equal(got[special], reference[special])
    error = np.abs(got[~special] - reference[~special]) - relative * np.abs(reference[~special])
    assert np.isfinite(got[~special]).all(), "unwritten, or not finite where the reference is"
    assert error.size == 0 or error.max() <= absolute, f"off by {error.max():.3g} more than allowed"


def rounding(dtype: str) -> float:
    """Relative error of float32 arithmetic over a row (some dozen roundings) and a rounding to ``dtype``."""
    return 32 * UNIT_ROUNDOFF["f32"] + (UNIT_ROUNDOFF[dtype] if dtype != "f32" else 0.0)


def smallest(dtype: str) -> float:
    """Half the spacing of the smallest numbers of ``dtype``: float16 runs out of exponent at 6e-8."""
    return 2.0**-25 if dtype == "f16" else 2.0**-126
