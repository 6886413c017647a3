"""The profiler as part of what is measured: a cost per operator, large beside small operators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flashperf.cases.definition import CONTROL, Built, Expectation, OpenCase, Point, Proof
from flashperf.cases.guards import torch_installed


def _make(path: str, sizes: Mapping[str, int], seed: int) -> Built:
    import torch
    from torch.profiler import ProfilerActivity, profile

    x = torch.randn(sizes["n"], sizes["n"], generator=torch.Generator().manual_seed(seed))
    operators = sizes["operators"]
    observed = 0.0

    def bare() -> Any:
        y = x
        for _ in range(operators):
            y = torch.relu(y)
        return y

    def profiled() -> Any:
        nonlocal observed
        detailed = path == "profiled_with_stacks"
        activities = [ProfilerActivity.CPU]
        with profile(activities=activities, record_shapes=detailed, with_stack=detailed) as profiler:
            result = bare()
        if not observed:
            observed = float(sum(event.name.startswith("aten::") for event in profiler.events()))
        return result

    def reference() -> Any:
        return torch.relu(x.double())

    if path == "bare":
        return Built(bare, reference, 0.0, {"observed": 0.0}, proof=Proof(ops=("aten::relu",)))
    return Built(profiled, reference, 0.0, lambda: {"observed": observed}, proof=None)


CASE = OpenCase(
    id="A7",
    name="profiler-per-operator",
    title="A profiler that changes the answer",
    source="pytorch/pytorch#82793, pytorch/kineto#325",
    reported="One image took 17.8 ms, and 30.5 ms of CPU by the profiler: some microseconds for each of very many "
    "small operators.",
    axis="operators",
    baseline="bare",
    optimised="profiled",
    others=("profiled_with_stacks",),
    make=_make,
    points=(
        Point({"operators": 60, "n": 8}, 60, paths=("profiled",)),
        Point({"operators": 180, "n": 8}, 180),
        Point({"operators": 540, "n": 8}, 540, paths=("profiled",)),
        Point({"operators": 180, "n": 256}, 180, CONTROL, paths=("profiled",)),
    ),
    headline=1,
    requires=(torch_installed,),
    expectation=Expectation("slower", "cost of observing"),
)
