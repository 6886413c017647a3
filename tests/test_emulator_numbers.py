"""The CUDA emulator: numbers, atomics, matrix instructions and asynchronous copies against known answers."""

from __future__ import annotations

import numpy as np
import pytest
from emulator_fixtures import LANES, ORDERS, module, unset

from flashperf.dtypes import from_bf16, to_bf16

# ---- numbers ---------------------------------------------------------------------------------------------


def test_half_conversion_rounds_like_numpy_for_every_value_and_every_tie() -> None:
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16)
    finite = np.sort(halves[np.isfinite(halves)].astype(np.float32))
    ties = (finite[1:] + finite[:-1]) / 2
    x = np.concatenate(
        [finite, ties, np.nextafter(ties, np.float32(9e9)), np.nextafter(ties, np.float32(-9e9))]
    )
    x = np.concatenate([x, np.array([65519.9, 65520, -65520, np.inf, -np.inf, 1e-10, 3e38], np.float32)])
    out, back = unset(x.size, dtype=np.float16), unset(x.size)
    module("numbers").launch("half_conversions", (1,), (32,), [x, out, back, x.size])
    with np.errstate(over="ignore"):
        expected = x.astype(np.float16)
    np.testing.assert_array_equal(out.view(np.uint16), expected.view(np.uint16))
    np.testing.assert_array_equal(back, expected.astype(np.float32))


def test_bf16_conversion_rounds_to_nearest_even() -> None:
    values = np.random.default_rng(3).standard_normal(5000).astype(np.float32)
    ties = (values.view(np.uint32) & np.uint32(0xFFFF0000) | np.uint32(0x8000)).view(np.float32)
    x = np.concatenate([values, ties, np.array([np.inf, 3.4e38, 1e-42, 0], np.float32)])
    out, back = unset(x.size, dtype=np.uint16), unset(x.size)
    module("numbers").launch("bf16_conversions", (1,), (32,), [x, out, back, x.size])
    np.testing.assert_array_equal(out, to_bf16(x))
    np.testing.assert_array_equal(back, from_bf16(to_bf16(x)))


def test_nan_stays_nan_in_both_types() -> None:
    for kind, dtype in (("half", np.float16), ("bf16", np.uint16)):
        x, out, back = np.array([np.nan], np.float32), np.zeros(1, dtype), np.zeros(1, np.float32)
        module("numbers").launch(f"{kind}_conversions", (1,), (1,), [x, out, back, 1])
        assert np.isnan(back[0])


def _arithmetic(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    fused = (a.astype(np.float64) * b + a).astype(np.float32)
    return np.stack(
        [a + b, a - b, a * b, a / b, fused, np.maximum(a, b), np.minimum(a, b), np.abs(a)], axis=1
    )


def test_half_arithmetic_rounds_once() -> None:
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal(1000).astype(np.float16) for _ in range(2))
    out = unset(1000, 8, dtype=np.float16)
    module("numbers").launch("half_arithmetic", (4,), (256,), [a, b, out, 1000])
    np.testing.assert_array_equal(
        out, _arithmetic(a.astype(np.float32), b.astype(np.float32)).astype(np.float16)
    )


def test_bf16_arithmetic_rounds_once() -> None:
    rng = np.random.default_rng(6)
    a, b = (to_bf16(rng.standard_normal(1000).astype(np.float32)) for _ in range(2))
    out = unset(1000, 8, dtype=np.uint16)
    module("numbers").launch("bf16_arithmetic", (4,), (256,), [a, b, out, 1000])
    np.testing.assert_array_equal(out, to_bf16(_arithmetic(from_bf16(a), from_bf16(b))))


def test_pairs() -> None:
    a, out = np.arange(64).astype(np.float16), unset(64, dtype=np.float16)
    module("numbers").launch("pairs", (1,), (32,), [a, out])
    np.testing.assert_array_equal(out, 2 * a + a.reshape(32, 2)[:, ::-1].ravel())


def test_integer_intrinsics() -> None:
    x = np.array([0, 1, 0x80000000, 0x12345678, 0xFFFFFFFF, 0x4E6E6B28, 0xC2F70001, 0x7F800000], np.uint32)
    out = unset(8, 8, dtype=np.int32)
    module("numbers").launch("integers", (1,), (8,), [x, out])
    for value, row in zip((int(v) for v in x), out.view(np.uint32), strict=True):
        text = f"{value:032b}"
        wide = (~value & 0xFFFFFFFF) << 32 | value
        permuted = sum((wide >> 8 * byte & 0xFF) << 8 * i for i, byte in enumerate((0, 5, 2, 7)))
        signed = [(value >> 8 * i & 0xFF) - 256 * (value >> 8 * i + 7 & 1) for i in range(4)]
        dot = (7 - 128 * signed[0] + 127 * signed[1] - signed[2] + signed[3]) & 0xFFFFFFFF
        first = text[::-1].find("1") + 1
        zeros = text.find("1") if value else 32
        wanted = [text.count("1"), first, zeros, int(text[::-1], 2), permuted, dot, value * value >> 32]
        assert row[:7].tolist() == wanted, hex(value)
    np.testing.assert_array_equal(out[:, 7], [0, 0, 0, 0, 0, 1000000000, -124, 2**31 - 1])


def test_float_functions() -> None:
    x = np.array([0.25, 1.0, 3.5, 1e-3], np.float32)
    out = unset(4, 6)
    module("numbers").launch("floats", (1,), (4,), [x, out])
    v = x.astype(np.float64)
    erf = np.array([0.2763263902, 0.8427007929, 0.9999992569, 0.0011283788])
    expected = [v**-0.5, np.exp(-v), 1 / v, np.clip(v, 0, 1), v * v - 1]
    expected += [erf + np.tanh(v) + np.maximum(v, 0.5) + 2**-v]
    np.testing.assert_allclose(out, np.stack(expected, axis=1), rtol=3e-7)


def test_vector_types() -> None:
    x, out = np.arange(16, dtype=np.float32), unset(16)
    module("numbers").launch("vectors", (1,), (4,), [x, out])
    np.testing.assert_array_equal(out.reshape(4, 4), x.reshape(4, 4)[:, [3, 2, 1, 0]])


@pytest.mark.parametrize("order", ORDERS)
def test_atomics(order: str) -> None:
    i, u = np.zeros(7, np.int32), np.array([0xFFFFFFFF, 0, 1, 0], np.uint32)
    f, wide = np.zeros(1, np.float32), np.zeros(1, np.uint64)
    module("numbers").launch("atomics", (1,), (32,), [i, u, f, wide, np.zeros(2, np.float16)], order=order)
    assert i[:4].tolist() == [496, -496, 31, -31]
    assert u.tolist() == [0, 0xFFFFFFFF, 1, 32 % 5]
    assert f[0] == 16
    assert wide[0] == 32 << 33
    assert i[4] == i[5] + 1
    assert 0 <= i[6] < 32


# ---- matrices --------------------------------------------------------------------------------------------


def _operands(kind: str, k: int, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Storage of A (16 x k) and of B transposed (n x k), and the exact float64 product."""
    rng = np.random.default_rng(k + n)
    shapes = ((16, k), (n, k))
    if kind == "s8":
        a, b = (rng.integers(-128, 128, shape).astype(np.int8) for shape in shapes)
        return a, b, a.astype(np.float64) @ b.astype(np.float64).T
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    if kind == "tf32":
        cut_a, cut_b = ((v.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) for v in (a, b))
        return a, b, cut_a.astype(np.float64) @ cut_b.astype(np.float64).T
    if kind == "bf16":
        a, b = to_bf16(a), to_bf16(b)
        return a, b, from_bf16(a).astype(np.float64) @ from_bf16(b).astype(np.float64).T
    a, b = a.astype(np.float16), b.astype(np.float16)
    return a, b, a.astype(np.float64) @ b.astype(np.float64).T


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind, k", [("half", 16), ("bf16", 16), ("tf32", 8), ("s8", 16)])
def test_wmma(kind: str, k: int, order: str) -> None:
    a, b, product = _operands(kind, k, 16)
    c = unset(16, 16, dtype=np.int32 if kind == "s8" else np.float32)
    module("matrices").launch(f"wmma_{kind}", (1,), (32,), [a, b, c], order=order)
    np.testing.assert_allclose(c, 2 * (product + 1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind, k", [("f16", 16), ("bf16", 16), ("tf32", 8), ("s8", 32)])
def test_mma_sync(kind: str, k: int, order: str) -> None:
    a, b, product = _operands(kind, k, 8)
    c = unset(16, 8, dtype=np.int32 if kind == "s8" else np.float32)
    args = [a.view(np.uint32), b.view(np.uint32), c]
    module("matrices").launch(f"mma_sync_{kind}", (1,), (32,), args, order=order)
    np.testing.assert_allclose(c, product, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("order", ORDERS)
def test_ldmatrix(order: str) -> None:
    x = np.arange(256, dtype=np.uint16)
    out = unset(32, 12, dtype=np.uint32)
    module("matrices").launch("ldmatrix", (1,), (32,), [x.view(np.uint32), out], order=order)
    tiles = x.reshape(4, 8, 8)
    row, column = LANES // 4, LANES % 4 * 2
    for start, wanted in ((0, tiles), (6, tiles.transpose(0, 2, 1))):
        pairs = wanted[:, row, column] + (wanted[:, row, column + 1].astype(np.uint32) << 16)
        np.testing.assert_array_equal(out[:, start : start + 4], pairs.T)
        np.testing.assert_array_equal(out[:, start + 4 : start + 6], pairs[2:].T)


def test_tf32_rounds_to_nearest_away_from_zero() -> None:
    x = np.array([1.0, 1 + 2**-11, 1 + 2**-11 - 2**-20, -1 - 2**-11], np.float32)
    out = unset(4)
    module("matrices").launch("rounded_to_tf32", (1,), (4,), [x, out])
    assert out.tolist() == [1.0, 1 + 2**-10, 1.0, -1 - 2**-10]


# ---- asynchronous copies ---------------------------------------------------------------------------------


def test_copies_arrive_at_their_wait_and_not_before() -> None:
    x, out = np.arange(256, dtype=np.float32), unset(32, 5, 4)
    module("copies").launch("two_groups", (1,), (32,), [x, out])
    first, second = x.reshape(2, 32, 4)
    assert np.isnan(out[:, 0]).all()
    np.testing.assert_array_equal(out[:, 1], first)
    assert np.isnan(out[:, 2]).all()
    np.testing.assert_array_equal(out[:, 3], first)
    np.testing.assert_array_equal(out[:, 4], np.where(np.arange(32)[:, None] < 16, second, 0))


def test_pipeline_functions() -> None:
    x, out = np.arange(32, dtype=np.float32), unset(32)
    module("copies").launch("pipeline_functions", (1,), (32,), [x, out])
    np.testing.assert_array_equal(out, x[::-1])
