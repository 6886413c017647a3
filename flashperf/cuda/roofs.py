"""What the roofs of a GPU launch, how much work that is, and what must come out (csrc/cuda/roofs.cu).

Arrays are CuPy's on a GPU and NumPy's for the emulator; numbers in them are small integers, so that every result is
exact, whatever the order of the additions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from flashperf import dtypes
from flashperf.emulator import Launch

THREADS, WARP = 256, 32
GROUP = 4  # f32 in the 16 bytes of an access
PER_BLOCK = 1024 * GROUP  # elements of a global array that a block takes at once
#: Pattern -> arrays that it walks through.
PATTERNS = {"load": 1, "copy": 2, "triad": 3}
FACTOR = np.float32(0.5)
#: Format -> the unit that computes in it.
UNITS = {"f32": "fma", "tf32": "mma.sync", "f16": "mma.sync", "bf16": "mma.sync", "i8": "mma.sync"}
#: Past these a sum of small integers might no longer be exact in f32.
MOST_SHARED_STEPS, MOST_FMA_STEPS, MOST_MMA_STEPS = 1 << 14, 1 << 17, 1 << 13

_FMA_SUMS = 8
_ROWS, _COLUMNS, _TILES_A, _TILES_B = 16, 8, 2, 4
_K_BYTES = 32  # of a product: 8 tf32, 16 f16 or bf16, 32 i8
_STORED_AS = {"tf32": "f32", "f16": "f16", "bf16": "bf16", "i8": "i8"}
_LARGEST = 3  # of an operand


def integers(n: int, seed: int = 0) -> np.ndarray:
    """Random integers from 0 to 7 as f32 [n]: neither zeros, which cost less power, nor anything that rounds."""
    return np.random.default_rng(seed).integers(0, 8, n).astype(np.float32)


# ---- streams ---------------------------------------------------------------------------------------------


def stream(pattern: str, arrays: Sequence[Any], blocks: int, passes: int = 1) -> Launch:
    """``passes`` times through global memory. Arrays f32 [n] in the order x, (z,) y; sums f32 [8 blocks] for loads.

    Raises ValueError unless n is a multiple of PER_BLOCK: the kernels have no remainder.
    """
    n = int(arrays[0].size)
    if n == 0 or n % PER_BLOCK:
        raise ValueError(f"{n} elements are not a multiple of {PER_BLOCK}")
    return _walk(f"stream_{pattern}", pattern, arrays, blocks, (np.int64(n // GROUP), np.int32(passes)))


def shared(pattern: str, arrays: Sequence[Any], blocks: int, steps: int) -> Launch:
    """``steps`` of 16 bytes per thread and array in shared memory; arrays as in ``stream``, each [n] for a block.

    Raises ValueError unless n is a power of two of at least one access per thread, or if there are too many steps.
    """
    n = int(arrays[0].size)
    if n < THREADS * GROUP or n & (n - 1) or not 0 < steps <= MOST_SHARED_STEPS:
        raise ValueError(
            f"{n} elements and {steps} steps: needs a power of two, at most {MOST_SHARED_STEPS} steps"
        )
    tail = (np.int32(n // GROUP), np.int32(steps))
    return _walk(f"shared_{pattern}", pattern, arrays, blocks, tail, PATTERNS[pattern] * 4 * n)


def _walk(
    kernel: str,
    pattern: str,
    arrays: Sequence[Any],
    blocks: int,
    tail: tuple[Any, ...],
    shared_bytes: int = 0,
) -> Launch:
    factor = (FACTOR,) if pattern == "triad" else ()
    return Launch(kernel, (blocks,), (THREADS,), (*arrays, *factor, *tail), shared_bytes)


def sums_of(blocks: int) -> int:
    """How many sums a load writes: one a warp."""
    return blocks * THREADS // WARP


def stream_bytes(pattern: str, n: int, passes: int = 1) -> int:
    """Bytes loaded and stored by ``stream`` on arrays of n elements."""
    return 4 * n * PATTERNS[pattern] * passes


def shared_bytes(pattern: str, blocks: int, steps: int) -> int:
    """Bytes loaded and stored by ``shared``."""
    return 4 * GROUP * THREADS * blocks * steps * PATTERNS[pattern]


def moved(pattern: str, inputs: Sequence[np.ndarray]) -> np.ndarray:
    """What y must be; for a load what the sums of one pass must add up to, [1]."""
    if pattern == "load":
        return np.array([inputs[0].sum(dtype=np.float64)])
    return inputs[0] + FACTOR * inputs[1] if pattern == "triad" else inputs[0]


def shared_sums(x: np.ndarray, blocks: int, steps: int) -> np.ndarray:
    """What the sums of a ``shared`` load must be, one a warp: x again and again."""
    per_step = x.astype(np.float64).reshape(-1, THREADS // WARP, WARP * GROUP).sum(axis=2)
    return np.tile(per_step[np.arange(steps) % len(per_step)].sum(axis=0), blocks)


# ---- arithmetic ------------------------------------------------------------------------------------------


def operands(number_format: str, seed: int = 0) -> tuple[np.ndarray, ...]:
    """What a peak kernel reads: f32 [9] for ``f32``, else the tiles of A and B as uint32 words, row by row."""
    rng = np.random.default_rng(seed)
    if number_format == "f32":
        return (np.concatenate([[1.0], rng.integers(1, 8, _FMA_SUMS)]).astype(np.float32),)
    k = _K_BYTES // dtypes.itemsize(_STORED_AS[number_format])
    shapes = ((_TILES_A, _ROWS, k), (_TILES_B, _COLUMNS, k))
    values = [rng.integers(-_LARGEST, _LARGEST + 1, shape).astype(np.float32) for shape in shapes]
    return tuple(
        np.ascontiguousarray(dtypes.cast(value, _STORED_AS[number_format])).view(np.uint32)
        for value in values
    )


def peak(number_format: str, arrays: Sequence[Any], blocks: int, steps: int) -> Launch:
    """Arrays: ``operands`` and the result of ``peak_result``. Raises ValueError for more steps than stay exact."""
    most = MOST_FMA_STEPS if number_format == "f32" else MOST_MMA_STEPS
    if not 0 < steps <= most:
        raise ValueError(f"{steps} steps in {number_format}: from 1 to {most} stay exact")
    kernel = f"peak_{number_format}_{'fma' if number_format == 'f32' else 'mma'}"
    return Launch(kernel, (blocks,), (THREADS,), (*arrays, np.int32(steps)))


def peak_operations(number_format: str, blocks: int, steps: int) -> int:
    """Multiplications and additions of a ``peak``."""
    if number_format == "f32":
        return 2 * _FMA_SUMS * THREADS * blocks * steps
    k = _K_BYTES // dtypes.itemsize(_STORED_AS[number_format])
    return 2 * _ROWS * _COLUMNS * k * _TILES_A * _TILES_B * (THREADS // WARP) * blocks * steps


def peak_result(number_format: str, blocks: int) -> np.ndarray:
    """Where a peak kernel writes: a sum per thread for ``f32``, else a tile of 16 x 8 per warp; unwritten is -1."""
    if number_format == "f32":
        return np.full((blocks * THREADS,), -1, np.float32)
    kind = np.int32 if number_format == "i8" else np.float32
    return np.full((blocks * THREADS // WARP, _ROWS, _COLUMNS), -1, kind)


def peak_expected(number_format: str, arrays: Sequence[np.ndarray], blocks: int, steps: int) -> np.ndarray:
    """What must be there, f64: all products of the tiles of A and B, summed, ``steps`` times, in every warp."""
    if number_format == "f32":
        return np.full((blocks * THREADS,), steps * arrays[0][1:].sum(dtype=np.float64))
    stored = dtypes.NUMPY_TYPES[_STORED_AS[number_format]]
    a, b = (
        dtypes.widen(words.view(stored), _STORED_AS[number_format]).astype(np.float64) for words in arrays
    )
    tile = steps * np.einsum("ark,bck->rc", a, b)
    return np.tile(tile, (blocks * THREADS // WARP, 1, 1))


def empty() -> Launch:
    """A launch that does nothing."""
    return Launch("empty_launch", (1,), (WARP,), ())
