"""Every matrix-product kernel at every usable instruction-set level, against float64."""

from __future__ import annotations

import numpy as np
import pytest
from gemm_cases import KERNELS, KernelCase, Output

from flashperf import dtypes, native

#: (m, k, n): ones, less than a vector, one off a panel or a tile, rows that fill a tile and one more, k odd and not
#: a multiple of a pair, a quad or an AMX chunk (32 or 64), more rows than a block of the left operand.
SIZES = [
    (1, 1, 1), (1, 3, 5), (2, 7, 31), (1, 64, 32), (1, 192, 96), (3, 33, 33), (4, 2, 65), (5, 66, 64), (7, 31, 17),
    (13, 65, 40), (14, 128, 32), (15, 17, 16), (16, 64, 48), (17, 63, 1), (31, 30, 63), (33, 96, 100), (48, 5, 7),
]  # fmt: skip
GUARD = 64  # bytes before and after every output


def guarded(output: Output) -> tuple[np.ndarray, np.ndarray]:
    """A poisoned output in the middle of a larger buffer, and the buffer; only element-aligned, as slices are."""
    kind = dtypes.NUMPY_TYPES[output.dtype]
    n_bytes = output.reference.size * kind.itemsize
    buffer = np.full(n_bytes + 2 * GUARD + kind.itemsize, 0xA5, dtype=np.uint8)
    start = -(buffer.ctypes.data + GUARD) % kind.itemsize + GUARD
    array = buffer[start : start + n_bytes].view(kind).reshape(output.reference.shape)
    dtypes.poison(array)
    return array, buffer


def run(level: str, kernel: str, case: KernelCase) -> list[np.ndarray]:
    """Run a case once; inputs must stay as they were, and nothing around the outputs may change."""
    arrays, buffers = zip(*(guarded(output) for output in case.outputs), strict=True)
    before = [x.copy() for x in case.inputs]
    native.library(level).prepare(kernel, *case.inputs, *arrays, **case.scalars)()
    assert all(np.array_equal(x, y) for x, y in zip(case.inputs, before, strict=True)), "an input was written"
    for array, buffer in zip(arrays, buffers, strict=True):
        start = array.ctypes.data - buffer.ctypes.data
        around = np.concatenate([buffer[:start], buffer[start + array.nbytes :]])
        assert (around == 0xA5).all(), "written outside the output"
    return list(arrays)


def assert_right(kernel: str, got: np.ndarray, output: Output) -> None:
    """Within the bound, element by element; NaN is never within it."""
    error = np.abs(dtypes.widen(got, output.dtype) - output.reference)
    wrong = ~(error <= output.bound)
    if wrong.any():
        index = tuple(int(i) for i in np.unravel_index(np.argmax(np.where(wrong, error, -1)), error.shape))
        limit = np.broadcast_to(output.bound, error.shape)[index]
        pytest.fail(f"{kernel}: {wrong.sum()} of {error.size} wrong, worst at {index}: off by {error[index]:.3g}, "
                    f"allowed {limit:.3g}, reference {output.reference[index]:.6g}")  # fmt: skip


@pytest.mark.parametrize("level", native.usable_levels())
@pytest.mark.parametrize("kernel", sorted(KERNELS))
def test_kernel_is_right_at_odd_sizes(kernel: str, level: str) -> None:
    for i, (m, k, n) in enumerate(SIZES):
        case = KERNELS[kernel](m, k, n, np.random.default_rng(i))
        for got, output in zip(run(level, kernel, case), case.outputs, strict=True):
            assert_right(f"{kernel} m={m} k={k} n={n}", got, output)
