"""Axes of a crossover: names for sizes, and where they come from."""

from __future__ import annotations

import pytest

from flashperf import registry
from flashperf.crossover import axes
from flashperf.crossover.axes import Axis, axis_of, base_sizes
from flashperf.errors import UserError


@pytest.mark.parametrize(
    ("mechanism", "name", "keys"),
    [
        ("fusion", None, ("rows",)),
        ("fusion", "cols", ("cols",)),
        ("quantization", "rows", ("m",)),
        ("quantization", "depth", ("k",)),
        ("attention", None, ("rows", "keys")),
        ("attention", "rows", ("rows",)),
        ("attention", "head_dim", ("head_dim",)),
        ("launch", None, ("n",)),
        ("checkpoint", None, ("steps",)),
    ],
)
def test_an_axis_is_a_name_for_sizes(mechanism: str, name: str | None, keys: tuple[str, ...]) -> None:
    assert axis_of(registry.mechanism(mechanism), name).keys == keys


def test_every_mechanism_has_an_axis_and_sizes_on_it() -> None:
    for mechanism in registry.mechanisms():
        axis = axis_of(mechanism)
        sizes = axis.at(base_sizes(mechanism), 7)
        assert set(sizes) == set(mechanism.bench_sizes[0])
        assert all(sizes[key] == 7 for key in axis.keys)


def test_sizes_follow_the_words_that_are_given() -> None:
    fusion = registry.mechanism("fusion")
    assert base_sizes(fusion, {"op": "softmax", "cols": 99})["op"] == "softmax"
    assert base_sizes(fusion, {"op": "softmax", "cols": 99})["cols"] == 99
    with pytest.raises(UserError, match="unknown op of fusion 'sofmax'"):
        base_sizes(fusion, {"op": "sofmax"})
    assert Axis("length", ("rows", "keys")).default_high < Axis("rows", ("rows",)).default_high
    assert set(axes.DEFAULT_ORDER) <= set(axes.AXES)
