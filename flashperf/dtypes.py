"""Element types by their short names, and the conversions NumPy lacks.

NumPy has no bfloat16: arrays of dtype ``bf16`` are ``uint16`` arrays that hold the upper half of an IEEE-754
binary32 value. Everything else maps to the NumPy type of the same width.
"""

from __future__ import annotations

import numpy as np

NUMPY_TYPES: dict[str, np.dtype] = {
    "f64": np.dtype(np.float64),
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(np.uint16),
    "e4m3": np.dtype(np.uint8),
    "i8": np.dtype(np.int8),
    "u8": np.dtype(np.uint8),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
}

#: Relative rounding error of one conversion to the type: half the distance from 1 to the next larger number.
#: tf32 is what Tensor Cores read of an f32: it has no type of its own in memory.
UNIT_ROUNDOFF: dict[str, float] = {
    "f64": 2.0**-53,
    "f32": 2.0**-24,
    "tf32": 2.0**-11,
    "f16": 2.0**-11,
    "bf16": 2.0**-8,
    "e4m3": 2.0**-4,
}

_POISON_BYTE = 0xFF  # NaN in every float type; -1 or 255 in the integers


def itemsize(dtype: str) -> int:
    """Bytes per element of a short dtype name."""
    return NUMPY_TYPES[dtype].itemsize


def to_bf16(values: np.ndarray) -> np.ndarray:
    """Round float32 values to bfloat16 (nearest, ties to even), as uint16; NaN stays NaN."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    quiet_nan = (bits >> np.uint32(16)) | np.uint32(0x40)
    is_nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    return np.where(is_nan, quiet_nan, rounded).astype(np.uint16)


def from_bf16(values: np.ndarray) -> np.ndarray:
    """Widen bfloat16 (uint16) to float32, exactly."""
    return (np.ascontiguousarray(values, dtype=np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)


def cast(values: np.ndarray, dtype: str) -> np.ndarray:
    """Convert float values to a short dtype name; a contiguous copy."""
    if dtype == "bf16":
        return to_bf16(values)
    return np.ascontiguousarray(values, dtype=NUMPY_TYPES[dtype])


def widen(values: np.ndarray, dtype: str) -> np.ndarray:
    """The float64 value of every element of an array of a short dtype name."""
    return (from_bf16(values) if dtype == "bf16" else values).astype(np.float64)


def aligned_empty(shape: tuple[int, ...], dtype: str, alignment: int = 64) -> np.ndarray:
    """An uninitialised C-contiguous array whose first element lies on an ``alignment``-byte boundary."""
    kind = NUMPY_TYPES[dtype]
    n_bytes = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    raw = np.empty(n_bytes + alignment, dtype=np.uint8)
    start = -raw.ctypes.data % alignment
    return raw[start : start + n_bytes].view(kind).reshape(shape)


def aligned_copy(values: np.ndarray, dtype: str) -> np.ndarray:
    """A 64-byte aligned, contiguous copy of ``values`` converted to a short dtype name."""
    converted = cast(values, dtype) if values.dtype != NUMPY_TYPES[dtype] else values
    out = aligned_empty(converted.shape, dtype)
    out[...] = converted
    return out


def poison(array: np.ndarray) -> None:
    """Fill an output so that an element that is never written shows: all bytes 0xFF (NaN in float types)."""
    array.view(np.uint8)[...] = _POISON_BYTE
