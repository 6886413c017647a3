"""``native.prepare``: whatever does not fit is a PrepareError that names the kernel and the argument."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from flashperf import native
from flashperf.native import PrepareError, Signature

N = 64


def vectors(n: int = N) -> list[np.ndarray]:
    return [np.ones(n, np.float32) for _ in range(3)]


def test_whole_floats_and_numpy_scalars_are_fine() -> None:
    for n in (N, float(N), np.int32(N), np.float32(N), np.array(N)):
        x, y, z = vectors()
        native.prepare("scale_add_f32", x, y, z, n=n, alpha=np.array(2.0))()
        assert (z == 3).all()
    native.prepare("scale_add_f32", *vectors(), alpha=Fraction(1, 2))
    native.prepare("scale_add_f32", *vectors(), alpha=float("inf"))


@pytest.mark.parametrize(
    ("scalars", "said"),
    [
        ({"alpha": "two"}, "scalar alpha is a str, needs a number"),
        ({"alpha": None}, "scalar alpha is a NoneType, needs a number"),
        ({"alpha": [1.0]}, "scalar alpha is a list, needs a number"),
        ({"alpha": 1j}, "scalar alpha is a complex, needs a number"),
        ({"alpha": np.ones(1)}, "scalar alpha is a ndarray, needs a number"),
        ({"alpha": 10**400}, "scalar alpha does not fit a float of 32 bits"),
        ({"alpha": 1e300}, "scalar alpha does not fit a float of 32 bits"),
        ({"alpha": 1, "n": "many"}, "scalar n is a str, needs a number"),
        ({"alpha": 1, "n": float("nan")}, "scalar n is nan, needs an integer"),
        ({"alpha": 1, "n": float("inf")}, "scalar n is inf, needs an integer"),
        ({"alpha": 1, "n": N + 0.5}, "scalar n is 64.5, needs an integer"),
        ({"alpha": 1, "n": 2**63}, "scalar n does not fit a 64-bit integer"),
        ({"alpha": 1, "n": 1e30}, "scalar n does not fit|scalar n is 1e"),
        ({"alpha": 1, "n": -N}, "dimension n is -64, must be at least 1"),
        ({"alpha": 1, "n": N + 1}, "has n=64, but n=65 elsewhere"),
        ({}, "needs alpha"),
        ({"alpha": 1, "beta": 2}, "no scalar 'beta' to set"),
    ],
)
def test_scalars_that_do_not_fit_are_refused(scalars: dict[str, Any], said: str) -> None:
    with pytest.raises(PrepareError, match=f"scale_add_f32: .*({said})"):
        native.prepare("scale_add_f32", *vectors(), **scalars)


@pytest.mark.parametrize("window", [1.5, float("nan"), "wide", 1 << 80])
def test_an_integer_scalar_that_is_no_dimension_is_not_rounded(window: Any) -> None:
    position, mask = np.zeros(4, np.int32), np.zeros((4, 8), np.float32)
    with pytest.raises(PrepareError, match="causal_mask: scalar window"):
        native.prepare("causal_mask", position, mask, window=window)


def _misaligned() -> np.ndarray:
    return np.zeros(4 * N + 4, np.uint8)[1 : 4 * N + 1].view(np.float32)


def _read_only() -> np.ndarray:
    array = np.ones(N, np.float32)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("place", "array", "said"),
    [
        (0, np.ones(N), "x has dtype float64, needs f32"),
        (0, [1.0] * N, "x is a list, needs a NumPy array"),
        (1, np.ones(N + 1, np.float32), "y has n=65, but n=64 elsewhere"),
        (1, np.ones((N, 1), np.float32), r"y has shape \(64, 1\), needs \[n\]"),
        (0, np.ones(2 * N, np.float32)[::2], "x is not C-contiguous"),
        (0, _misaligned(), "x is not aligned to 4 bytes"),
        (2, _read_only(), "z is read-only"),
        (0, np.ones(0, np.float32), "x has a zero size"),
    ],
    ids=["dtype", "list", "size", "rank", "strides", "misaligned", "read-only", "empty"],
)
def test_arrays_that_do_not_fit_are_refused(place: int, array: Any, said: str) -> None:
    arrays: list[Any] = vectors()
    arrays[place] = array
    with pytest.raises(PrepareError, match=f"scale_add_f32: {said}"):
        native.prepare("scale_add_f32", *arrays, alpha=1)


def test_overlap_and_number_of_arrays() -> None:
    x, y, _ = vectors()
    memory = np.ones(2 * N, np.float32)
    with pytest.raises(PrepareError, match="scale_add_f32: z overlaps x in memory"):
        native.prepare("scale_add_f32", memory[:N], y, memory[N // 2 : N // 2 + N], alpha=1)
    native.prepare("scale_add_f32", x, x, memory[:N], alpha=1)  # two inputs may be one
    with pytest.raises(PrepareError, match=r"takes 3 arrays \(x, y, z\), got 2"):
        native.prepare("scale_add_f32", x, y, alpha=1)


def test_an_unknown_kernel_gets_the_nearest_names() -> None:
    with pytest.raises(PrepareError, match=r"unknown kernel 'scale_ad_f32': did you mean .*scale_add_f32"):
        native.prepare("scale_ad_f32", *vectors(), alpha=1)


@pytest.mark.parametrize(
    ("text", "types", "said"),
    [
        ("x[n] -> y[n]; n", "const f32*,f32*", "2 C\\+\\+ arguments"),
        ("x[n] -> y[n]; n", "const f32*,const f32*,i64", "argument y is const f32"),
        ("x[n] -> y[n]; n", "f32*,f32*,i64", "argument x is f32"),
        ("~x[n]; n", "const f32*,i64", "argument x is const f32"),
        ("x[n] -> y[n]; n", "i64,f32*,i64", "argument x is i64"),
    ],
)
def test_a_signature_that_is_not_its_code_is_a_fault(text: str, types: str, said: str) -> None:
    with pytest.raises(RuntimeError, match=f"kernel k: .*{said}"):
        Signature.parse("k", text, types)


def test_a_signature_is_read() -> None:
    found = Signature.parse("k", "x[m,k/4] ~t[m] -> y[m]; m k eps", "const bf16*,f32*,f32*,i64,i64,f32")
    assert [(a.name, a.dims, a.dtype, a.written) for a in found.arrays] == [
        ("x", ("m", "k/4"), "bf16", False),
        ("t", ("m",), "f32", True),
        ("y", ("m",), "f32", True),
    ]
    assert found.scalars == (("m", "i64"), ("k", "i64"), ("eps", "f32"))


def test_a_dimension_that_can_not_be_read_is_a_fault() -> None:
    found = Signature.parse("k", "x[n-1]; n", "const f32*,i64")
    with pytest.raises(RuntimeError, match="cannot read dimension 'n-1'"):
        found.dimensions((np.ones(3, np.float32),), {"n": 4})
