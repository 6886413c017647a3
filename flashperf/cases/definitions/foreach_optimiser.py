"""An optimiser step over many small tensors: called once, but dispatched tensor by tensor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flashperf.cases.definition import CONTROL, Built, Expectation, OpenCase, Point, Proof
from flashperf.cases.guards import torch_installed


def _make(path: str, sizes: Mapping[str, int], seed: int) -> Built:
    import torch

    generator = torch.Generator().manual_seed(seed)
    parameters = []
    for _ in range(sizes["tensors"]):
        parameter = torch.nn.Parameter(torch.randn(sizes["elements"], generator=generator))
        parameter.grad = torch.randn(sizes["elements"], generator=generator)
        parameters.append(parameter)
    options: dict[str, Any] = {
        "fused": {"fused": True},
        "foreach": {"foreach": True},
        "loop": {"foreach": False},
    }[path]
    optimiser = torch.optim.AdamW(parameters, lr=1e-3, **options)

    def call() -> Any:
        optimiser.step()
        return parameters

    marks = {"fused": "aten::_fused_adamw_", "foreach": "aten::_foreach_addcdiv_", "loop": "aten::addcdiv_"}
    return Built(
        call=call,
        tolerance=1e-5,
        facts={"tensors": sizes["tensors"], "elements": sizes["tensors"] * sizes["elements"]},
        proof=Proof(
            ops=(marks[path],), absent=tuple(mark for p, mark in marks.items() if p != path and p != "loop")
        ),
    )


CASE = OpenCase(
    id="A8",
    name="foreach-optimiser",
    title="A multi-tensor optimiser that dispatches per tensor",
    source="microsoft/dion#63, pytorch/pytorch#134191",
    reported="150 parameters updated through foreach operators: 138 ms of dispatching for 13 ms of work on the "
    "GPU; the fused optimiser took 43 ms.",
    axis="tensors",
    baseline="fused",
    optimised="foreach",
    others=("loop",),
    make=_make,
    points=(
        Point({"tensors": 500, "elements": 64}, 500),
        Point({"tensors": 50, "elements": 640}, 50),
        Point({"tensors": 2, "elements": 1048576}, 2, CONTROL),
    ),
    requires=(torch_installed,),
    expectation=Expectation("slower", "dispatch count"),
)
