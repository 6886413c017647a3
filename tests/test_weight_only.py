"""INT8 weights alone, and with static scales: kernels against float64 at every level and odd size."""

from __future__ import annotations

import numpy as np
import pytest
from guarded import DTYPES, Guarded

from flashperf import native
from flashperf.dtypes import aligned_copy, aligned_empty
from flashperf.mechanisms.quantization import quantize_columns

SHAPES = [(1, 5, 3), (1, 192, 512), (7, 67, 33), (15, 64, 31), (40, 192, 70)]
ROUNDOFF = {"f32": 0.0, "bf16": 2.0**-8, "f16": 2.0**-11}


def silu(x: np.ndarray) -> np.ndarray:
    return x * 0.5 * (1 + np.tanh(x / 2))


def operands(shape: tuple[int, int, int], seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    m, k, n = shape
    rng = np.random.default_rng(seed)
    values, scale = quantize_columns(rng.standard_normal((k, n)).astype(np.float32) / np.sqrt(k))
    return rng.standard_normal((m, k)), aligned_copy(values, "i8"), aligned_copy(scale, "f32")


def packed(library: native.Library, values: np.ndarray) -> np.ndarray:
    k, n = values.shape
    found = aligned_empty((-(-n // 32), k, 32), "i8")
    found[...] = 99
    library.prepare("pack_w8", values, found)()
    return found


@pytest.mark.parametrize("level", native.usable_levels())
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_products_of_int8_weights(level: str, dtype: str, shape: tuple[int, int, int]) -> None:
    library = native.library(level)
    x, values, scale = operands(shape, seed=1)
    left = Guarded(x.shape, dtype, x.astype(np.float32))
    y = Guarded((shape[0], shape[2]), dtype)
    library.prepare(f"gemm_w8_packed_{dtype}", left.array, packed(library, values), scale, y.array)()
    wanted = left.values() @ (values * scale.astype(np.float64))
    np.testing.assert_allclose(y.values(), wanted, rtol=2 * ROUNDOFF[dtype], atol=2e-5)

    _, other, other_scale = operands(shape, seed=2)
    hidden = Guarded((shape[0], shape[2]), dtype)
    pair = (packed(library, values), scale, packed(library, other), other_scale)
    library.prepare(f"gemm_swiglu_w8_packed_{dtype}", left.array, *pair, hidden.array)()
    up = left.values() @ (other * other_scale.astype(np.float64))
    np.testing.assert_allclose(hidden.values(), silu(wanted) * up, rtol=2 * ROUNDOFF[dtype] + 1e-5, atol=1e-4)


@pytest.mark.parametrize("level", native.usable_levels())
@pytest.mark.parametrize("dtype", DTYPES)
def test_weights_brought_back_to_floats(level: str, dtype: str) -> None:
    _, values, scale = operands((1, 5, 33), seed=3)
    w = Guarded(values.shape, dtype)
    native.library(level).prepare(f"dequantize_weight_{dtype}", values, scale, w.array)()
    np.testing.assert_allclose(w.values(), values * scale.astype(np.float64), rtol=2 * ROUNDOFF[dtype] + 1e-7)


def test_packing_pads_with_zeros() -> None:
    values = aligned_copy(np.arange(1, 11, dtype=np.int8).reshape(2, 5), "i8")
    found = packed(native.library(), values)
    np.testing.assert_array_equal(found[0, :, :5], values)
    assert (found[0, :, 5:] == 0).all()


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_staging_copies_everything(dtype: str) -> None:
    source = Guarded((70,), dtype, np.arange(70, dtype=np.float32))
    staged = Guarded((70,), dtype)
    native.prepare(f"stage_{dtype}", source.array, staged.array)()
    np.testing.assert_array_equal(staged.values(), np.arange(70))
