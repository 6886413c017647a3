"""Row-wise kernels: every kernel, level and storage type against float64, at odd sizes and at extremes."""

from __future__ import annotations

import numpy as np
import pytest
from guarded import DTYPES, LENGTHS, Guarded, assert_close, rounding, smallest
from scipy.special import erf

from flashperf import native

LEVELS = native.usable_levels()
every_level_and_type = pytest.mark.parametrize("dtype", DTYPES), pytest.mark.parametrize("level", LEVELS)


def on_every_level_and_type(test):
    for mark in every_level_and_type:
        test = mark(test)
    return test


def silu(x):
    return x / (1 + np.exp(-x))


def gelu(x):
    return 0.5 * x * (1 + erf(x / np.sqrt(2)))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def rmsnorm(x, weight):
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + EPS) * weight


EPS = 1e-5
#: name: (reference, shapes of the inputs for (r, c), shape of the output, scalars)
KERNELS = {
    "square": (lambda x: x**2, ["n"], "n", {}),
    "silu": (silu, ["n"], "n", {}),
    "gelu": (gelu, ["n"], "n", {}),
    "exp": (np.exp, ["n"], "n", {}),
    "add": (lambda a, b: a + b, ["n", "n"], "n", {}),
    "multiply": (lambda a, b: a * b, ["n", "n"], "n", {}),
    "swiglu": (lambda gate, up: silu(gate) * up, ["n", "n"], "n", {}),
    "rsqrt_eps": (lambda x: 1 / np.sqrt(x + EPS), ["r"], "r", {"eps": EPS}),
    "row_sum": (lambda x: x.sum(-1), ["rc"], "r", {}),
    "row_mean": (lambda x: x.mean(-1), ["rc"], "r", {}),
    "row_max": (lambda x: x.max(-1), ["rc"], "r", {}),
    "scale_rows": (lambda x, s: x * s[:, None], ["rc", "r"], "rc", {}),
    "subtract_rows": (lambda x, s: x - s[:, None], ["rc", "r"], "rc", {}),
    "divide_rows": (lambda x, s: x / s[:, None], ["rc", "r"], "rc", {}),
    "scale_cols": (lambda x, w: x * w, ["rc", "c"], "rc", {}),
    "add_cols": (lambda x, w: x + w, ["rc", "c"], "rc", {}),
    "bias_gelu": (lambda x, b: gelu(x + b), ["rc", "c"], "rc", {}),
    "softmax": (softmax, ["rc"], "rc", {}),
    "rmsnorm": (rmsnorm, ["rc", "c"], "rc", {"eps": EPS}),
}
CANCELLING = {"row_sum", "row_mean", "gelu", "bias_gelu"}  # an error relative to the terms, not to the result


def run(level, name, dtype, inputs, out_shape, scalars):
    """Prepare and run with fenced inputs; the inputs as float64 and the output."""
    arrays = [Guarded(x.shape, dtype, x) for x in inputs]
    output = Guarded(out_shape, dtype)
    native.library(level).prepare(f"{name}_{dtype}", *(a.array for a in arrays), output.array, **scalars)()
    return [a.values() for a in arrays], output


@pytest.mark.parametrize("name", KERNELS)
@on_every_level_and_type
def test_kernel_equals_the_reference_at_every_length(level, dtype, name):
    reference, shapes, out_shape, scalars = KERNELS[name]
    rng = np.random.default_rng(1)
    for cols in LENGTHS:
        for rows in (1, 3):
            size = {"n": (cols,), "rc": (rows, cols), "r": (rows,), "c": (cols,)}
            inputs = [2 * rng.standard_normal(size[s]).astype(np.float32) for s in shapes]
            if name in ("rsqrt_eps", "divide_rows"):
                inputs[-1] = np.abs(inputs[-1]) + np.float32(0.1)
            exact, output = run(level, name, dtype, inputs, size[out_shape], scalars)
            absolute = smallest(dtype) + (2e-6 * np.sqrt(cols) if name in CANCELLING else 0.0)
            assert_close(output.values(), reference(*exact), rounding(dtype), absolute)


@on_every_level_and_type
def test_updates_in_place(level, dtype):
    rng = np.random.default_rng(2)
    for cols in LENGTHS:
        x, delta, weight = (
            Guarded(s, dtype, rng.standard_normal(s)) for s in ((3, cols), (3, cols), (cols,))
        )
        y = Guarded((3, cols), dtype)
        total = x.values() + delta.values()
        native.library(level).prepare(
            f"residual_rmsnorm_{dtype}", x.array, delta.array, weight.array, y.array, eps=EPS
        )()
        assert_close(x.values(), total, rounding(dtype), smallest(dtype))
        assert_close(y.values(), rmsnorm(x.values(), weight.values()), rounding(dtype), smallest(dtype))
        total, again = Guarded((3, cols), dtype), Guarded((3, cols), dtype)
        before = x.values()
        native.library(level).prepare(
            f"add_rmsnorm_{dtype}", x.array, delta.array, weight.array, total.array, again.array, eps=EPS
        )()
        assert_close(total.values(), before + delta.values(), rounding(dtype), smallest(dtype))
        assert_close(
            again.values(), rmsnorm(total.values(), weight.values()), rounding(dtype), smallest(dtype)
        )
        np.testing.assert_array_equal(x.values(), before)
        flat, flat_delta = x.array.reshape(-1), delta.array.reshape(-1)
        again = x.values() + delta.values()
        native.library(level).prepare(f"accumulate_{dtype}", flat, flat_delta)()
        assert_close(x.values(), again, rounding(dtype), smallest(dtype))


@pytest.mark.parametrize("level", LEVELS)
def test_functions_keep_their_stated_accuracy_over_their_range(level):
    x = np.concatenate([np.linspace(-87.3, 88.7, 40001), np.linspace(-7, 7, 40001)]).astype(np.float32)
    exact = x.astype(np.float64)
    for name, reference, relative, absolute in (
        ("exp", np.exp(exact), 2.0**-22.5, 0.0),
        ("silu", silu(exact), 2.0**-21.5, 1e-35),
        ("gelu", gelu(exact), 2.0**-23, 1.5e-7 * np.abs(exact)),
    ):
        _, output = run(level, name, "f32", [x], x.shape, {})
        error = np.abs(output.values() - reference) - relative * np.abs(reference) - absolute
        assert error.max() <= 0, f"{name} at {x[error.argmax()]}: {error.max()}"


@on_every_level_and_type
def test_extremes(level, dtype):
    """Infinities, huge, subnormal and NaN inputs, in whole vectors and in the tail."""
    inf, nan = np.inf, np.nan
    expected = {
        "exp": {-inf: 0.0, -1e4: 0.0, inf: inf, 1e4: inf, 0.0: 1.0, 1e-40: 1.0, nan: nan},
        "gelu": {-3e4: 0.0, 3e4: 3e4, inf: inf, 0.0: 0.0, nan: nan},
        "silu": {-3e4: 0.0, 3e4: 3e4, inf: inf, 0.0: 0.0, nan: nan},
        "square": {-inf: inf, 1e-40: 0.0, nan: nan},
    }
    for name, table in expected.items():
        for argument, result in table.items():
            for at in (0, 20, 33, 36):
                x = np.zeros(37)
                x[at] = argument
                _, output = run(level, name, dtype, [x.astype(np.float32)], x.shape, {})
                got = output.values()
                assert_close(got[at : at + 1], np.array([result]), 2.0**-8, 1e-30)
                assert np.isfinite(np.delete(got, at)).all(), "one element changed another"


@on_every_level_and_type
def test_softmax_rows_with_offsets_outliers_and_infinities(level, dtype):
    rng = np.random.default_rng(3)
    for cols in (5, 16, 37, 64, 130):
        x = rng.standard_normal((6, cols)) * 3
        x[0] += 80
        x[1] -= 80
        x[2, cols // 2] = 3e4
        x[3, : cols // 2] = -np.inf
        x[4] = -np.inf
        x[5, cols - 1] = np.nan
        (exact,), output = run(level, "softmax", dtype, [x.astype(np.float32)], x.shape, {})
        got = output.values()
        assert_close(got[:4], softmax(exact[:4]), rounding(dtype), smallest(dtype))
        assert np.isnan(got[4:]).all()
        _, peak = run(level, "row_max", dtype, [x.astype(np.float32)], (6,), {})
        np.testing.assert_array_equal(peak.values(), exact.max(-1))


@on_every_level_and_type
def test_norms_of_zero_and_huge_rows_stay_finite(level, dtype):
    x = np.zeros((3, 37), np.float32)
    x[1] = 200.0
    x[2, 30] = 6e4
    weight = np.ones(37, np.float32)
    (exact, _), output = run(level, "rmsnorm", dtype, [x, weight], x.shape, {"eps": EPS})
    assert_close(output.values(), rmsnorm(exact, 1.0), rounding(dtype), smallest(dtype))


@on_every_level_and_type
def test_row_choice_never_leaves_the_table(level, dtype):
    rng = np.random.default_rng(4)
    index = np.array([3, 0, -1, 4, 5, 2**31 - 1, -(2**31)], np.int32)
    wanted = np.clip(index, 0, 4)
    for d in (1, 7, 16, 33):
        table = Guarded((5, d), dtype, rng.standard_normal((5, d)))
        for name, arrays in (("embed", (index, table.array)), ("take_rows", (table.array, index))):
            output = Guarded((len(index), d), dtype)
            native.library(level).prepare(f"{name}_{dtype}", *arrays, output.array)()
            np.testing.assert_array_equal(output.values(), table.values()[wanted])


@pytest.mark.parametrize("window", [0, 1, 3, 50])
@pytest.mark.parametrize("level", LEVELS)
def test_causal_mask(level, window):
    position = np.array([0, 3, 36, 40, -1, 5], np.int32)
    mask = Guarded((6, 37), "f32")
    native.library(level).prepare("causal_mask", position, mask.array, window=window)()
    key = np.arange(37)
    seen = key <= position[:, None]
    if window:
        seen &= key > position[:, None] - window
    np.testing.assert_array_equal(mask.values(), np.where(seen, 0.0, -np.inf))


@pytest.mark.parametrize("level", LEVELS)
def test_streaming_kernels_at_every_length_and_alignment(level):
    rng = np.random.default_rng(5)
    library = native.library(level)
    for n in (*LENGTHS, 1000):
        x, z = (Guarded((n,), "f32", rng.standard_normal(n)) for _ in range(2))
        for name in ("copy_f32", "copy_stream_f32"):
            y = Guarded((n,), "f32")  # the fence puts it off every vector boundary
            library.prepare(name, x.array, y.array)()
            np.testing.assert_array_equal(y.values(), x.values())
        y, total = Guarded((n,), "f32"), Guarded((1,), "f32")
        library.prepare("triad_f32", x.array, z.array, y.array, factor=3.0)()
        assert_close(y.values(), x.values() + 3 * z.values(), 2.0**-22, 1e-6)
        library.prepare("read_sum_f32", x.array, total.array)()
        assert_close(total.values(), x.values().sum(keepdims=True), 1e-5, 1e-4)
