"""Compiling two operators on a vector that fits into a cache line or two: a cost per call with little to save."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from flashperf.cases.definition import CONTROL, Built, Expectation, OpenCase, Point, Proof
from flashperf.cases.guards import cxx_compiler, torch_installed


def _two_operators(a: Any, b: Any) -> Any:
    import torch

    return torch.minimum(a, b).sum(-1)


def _twenty_operators(a: Any, b: Any) -> Any:
    import torch

    for _ in range(10):
        a = torch.minimum(a, b) * 0.5
    return a.sum(-1)


@functools.cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    import torch

    return torch.compile(function, dynamic=False)


def _make(path: str, sizes: Mapping[str, int], seed: int) -> Built:
    import torch

    function = _two_operators if sizes["operators"] == 2 else _twenty_operators
    generator = torch.Generator().manual_seed(seed)
    a, b = (torch.randn(sizes["n"], generator=generator) for _ in range(2))
    proof = Proof(ops=("aten::minimum", "aten::sum"), absent=("Torch-Compiled Region: 0/0",))
    run = function
    if path == "compiled":
        run = _compiled(function)
        proof = Proof(ops=("Torch-Compiled Region", "## Call CompiledFxGraph"), absent=("aten::minimum",))
    return Built(
        call=functools.partial(run, a, b),
        reference=lambda: function(a.double(), b.double()),
        tolerance=1e-4,
        proof=proof,
    )


CASE = OpenCase(
    id="A1",
    name="compiled-small-vectors",
    title="Compiled code on short vectors",
    source="pytorch/pytorch#106466",
    reported="A minimum and a sum over 96 or 192 numbers: about three times slower compiled, and five times with "
    "dynamic shapes.",
    axis="n",
    baseline="eager",
    optimised="compiled",
    make=_make,
    points=(
        Point({"n": 96, "operators": 2}, 96),
        Point({"n": 4096, "operators": 2}, 4096),
        Point({"n": 262144, "operators": 2}, 262144),
        Point({"n": 4194304, "operators": 2}, 4194304),
        Point({"n": 96, "operators": 20}, 96, CONTROL),
    ),
    requires=(torch_installed, cxx_compiler),
    expectation=Expectation("slower", "fixed cost per call"),
)
