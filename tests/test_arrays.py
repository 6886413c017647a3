"""Arrays of NumPy and torch as a comparison sees them."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np
import pytest

from flashperf.comparing import arrays
from flashperf.dtypes import widen

torch = pytest.importorskip("torch")

Pair = namedtuple("Pair", "left right")


def examples() -> dict[str, Any]:
    return {
        "f32": np.arange(6, dtype=np.float32).reshape(2, 3),
        "strided": np.arange(12.0).reshape(3, 4)[:, ::2],
        "i8": np.arange(-3, 3, dtype=np.int8),
        "bool": np.array([True, False]),
        "complex": np.array([1 + 2j, 3 - 1j]),
        "torch_f32": torch.arange(6.0).reshape(2, 3),
        "torch_bf16": torch.tensor([1.0, -2.5, 3.0], dtype=torch.bfloat16),
        "torch_f16": torch.tensor([1.0, 0.5], dtype=torch.float16),
        "torch_i64": torch.tensor([1, -2]),
        "torch_bool": torch.tensor([True, False]),
        "torch_transposed": torch.arange(6.0).reshape(2, 3).T,
        "torch_grad": torch.ones(3, requires_grad=True),
    }


@pytest.mark.parametrize("name", examples())
def test_a_fresh_copy_is_equal_and_apart(name: str) -> None:
    array = examples()[name]
    copy = arrays.fresh(array)
    assert type(copy) is type(array)
    assert copy.dtype == array.dtype
    assert arrays.same_bytes(array, copy)
    assert not arrays.shares_memory(array, copy)
    assert getattr(copy, "requires_grad", False) == getattr(array, "requires_grad", False)
    strides = "stride" if isinstance(array, torch.Tensor) else None
    if strides:
        assert copy.stride() == array.stride()


@pytest.mark.parametrize("name", examples())
def test_poison_changes_every_element_and_restore_undoes_it(name: str) -> None:
    array = examples()[name]
    before = arrays.fresh(array)
    arrays.poison(array)
    values, dtype = arrays.to_numpy(array)
    if dtype.startswith(("f", "bf")):
        assert np.isnan(widen(values, dtype)).all()
    else:
        assert (values == (1 if "bool" in name else np.iinfo(values.dtype).max)).all()
    arrays.restore(array, before)
    assert arrays.same_bytes(array, before)


def test_read_only_memory_is_left_alone() -> None:
    array = np.ones(3)
    array.flags.writeable = False
    arrays.poison(array)
    arrays.restore(array, array)
    assert (array == 1).all()
    arrays.poison(np.float32(1.0))  # a scalar has no memory of its own


def test_float64_widens_floats_and_keeps_the_rest() -> None:
    for name, kind in (("f32", np.float64), ("complex", np.complex128), ("i8", np.int8), ("bool", np.bool_)):
        assert arrays.in_float64(examples()[name]).dtype == kind
    for name, kind in (("torch_bf16", torch.float64), ("torch_i64", torch.int64)):
        assert arrays.in_float64(examples()[name]).dtype == kind
    wide = arrays.in_float64(examples()["torch_grad"])
    assert wide.requires_grad
    assert wide.is_leaf


@pytest.mark.parametrize(
    ("name", "dtype", "shape"),
    [
        ("f32", "f32", (2, 3)), ("i8", "i8", (6,)), ("bool", "u8", (2,)), ("complex", "f64", (2, 2)),
        ("torch_bf16", "bf16", (3,)), ("torch_f16", "f16", (2,)), ("torch_i64", "i64", (2,)),
        ("torch_transposed", "f32", (3, 2)),
    ],
)  # fmt: skip
def test_values_on_the_host(name: str, dtype: str, shape: tuple[int, ...]) -> None:
    values, short = arrays.to_numpy(examples()[name])
    assert (short, values.shape) == (dtype, shape)


def test_bf16_keeps_its_bits() -> None:
    values, _ = arrays.to_numpy(torch.tensor([1.0, -2.5], dtype=torch.bfloat16))
    assert values.tolist() == [0x3F80, 0xC020]


def test_flatten_names_nested_arrays() -> None:
    x, y = np.ones(2), torch.ones(3)
    found = arrays.flatten({"a": x, "b": (y, [2.0, None, "text", True]), "c": Pair(x, 1)})
    assert list(found) == ["a", "b.0", "b.1.0", "c.0", "c.1"]
    assert found["b.1.0"].shape == ()
    assert arrays.flatten(x, "result") == {"result": x}


def test_map_keeps_the_nesting() -> None:
    mapped = arrays.map_arrays({"a": [np.ones(2)], "b": Pair(torch.ones(1), "text")}, lambda array: array * 2)
    assert mapped["a"][0].tolist() == [2, 2]
    assert type(mapped["b"]) is Pair
    assert (mapped["b"].left.item(), mapped["b"].right) == (2, "text")


def test_memory_is_compared_across_libraries() -> None:
    base = np.arange(10.0)
    assert arrays.shares_memory(base[:5], base[4:])
    assert not arrays.shares_memory(base[:5], base[5:])
    assert arrays.shares_memory(base, torch.from_numpy(base))
    tensor = torch.arange(10.0)
    assert arrays.shares_memory(tensor[:2], tensor[5:])  # one storage
    assert not arrays.shares_memory(np.float32(1), np.float32(1))


def test_host_arrays_need_no_synchronising() -> None:
    assert arrays.synchroniser({"x": np.ones(1), "y": torch.ones(1)}) is None
