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
    before = [x.tobytes() for x in case.inputs]
    native.library(level).prepare(kernel, *case.inputs, *arrays, **case.scalars)()
    assert all(x.tobytes() == y for x, y in zip(case.inputs, before, strict=True)), "an input was written"
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


#: Beyond what the products keep at once: of the right operand (768 KiB of panels; 1.5 MiB of rows), of the left
#: (128 KiB, two blocks of rows), of k on AMX tiles (8 chunks of 64 bytes); and not a multiple of any of them.
LARGE_SIZES = [(3, 701, 620), (50, 601, 661), (130, 301, 907), (17, 1100, 70)]
LARGE_KERNELS = [name for name in sorted(KERNELS) if name.startswith("gemm_") and not name.endswith("_naive")]


@pytest.mark.parametrize("level", native.usable_levels())
@pytest.mark.parametrize("kernel", LARGE_KERNELS)
def test_product_is_right_beyond_one_block(kernel: str, level: str) -> None:
    for i, (m, k, n) in enumerate(LARGE_SIZES):
        case = KERNELS[kernel](m, k, n, np.random.default_rng(i))
        for got, output in zip(run(level, kernel, case), case.outputs, strict=True):
            assert_right(f"{kernel} m={m} k={k} n={n}", got, output)


@pytest.mark.parametrize("level", native.usable_levels())
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_quantising_rows_without_a_scale_gives_zeros(dtype: str, level: str) -> None:
    """A row of zeros, and one whose 127 / absmax is no float, have scale 0: nothing is divided by zero."""
    x = np.zeros((3, 37), dtype=np.float32)
    x[1] = 1e-38
    x[2, 5] = -2.0
    q, scale = np.full((3, 37), 99, np.int8), np.full(3, np.nan, np.float32)
    native.library(level).prepare(f"quantize_rows_{dtype}", dtypes.cast(x, dtype), q, scale)()
    assert not q[:2].any()
    assert not scale[:2].any()
    assert q[2, 5] == -127
    assert scale[2] == np.float32(2.0) / np.float32(127)


@pytest.mark.parametrize("level", native.usable_levels())
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("layout", ["packed", "blocked", "bad_tile"])
def test_nan_stays_in_its_row_and_its_column(layout: str, dtype: str, level: str) -> None:
    """Neighbours that are read along with a row's or a panel's end must be multiplied by nothing at all."""
    for m, k, n in [(1, 5, 3), (34, 37, 40), (50, 299, 70)]:
        kernel = f"gemm_{dtype}_{layout}"
        case = KERNELS[kernel](m, k, n, np.random.default_rng(0))
        nan = dtypes.cast(np.array([np.nan], np.float32), dtype)[0]
        x, w = case.inputs
        x[m // 2, 0] = nan
        if layout != "packed":
            w[-1, n // 2] = nan
        (y,) = run(level, kernel, KernelCase([x, w], case.outputs))
        wrong = np.zeros((m, n), bool)
        wrong[m // 2] = True
        wrong[:, n // 2] |= layout != "packed"
        np.testing.assert_array_equal(np.isnan(dtypes.widen(y, dtype)), wrong)


def test_every_kernel_of_the_family_has_a_case() -> None:
    """A kernel that nobody wrote a case for would never be checked."""
    family = {
        name
        for name in native.library().signatures
        if name.startswith(("gemm_", "pack_", "cast_", "quantize_", "dequantize_", "mlp_over", "scale_add"))
        and "w8" not in name  # weights alone in INT8: test_weight_only.py
        and not name.startswith("dequantize_weight")
    }
    assert family == set(KERNELS)
