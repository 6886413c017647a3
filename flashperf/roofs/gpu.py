"""Measures the roofs of a GPU: fresh processes, one after another, as for the CPU, each timed by the device's clock."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from flashperf import environment
from flashperf.backends import available
from flashperf.errors import UserError
from flashperf.gpu.properties import GpuProperties, read_properties
from flashperf.records import Environment
from flashperf.roofs.gpu_plan import SHARED, GpuPlan, plan_for
from flashperf.roofs.model import COMPUTE, DISPATCH, LINK, MEMORY, SCRATCHPAD, TIMER, Ceiling
from flashperf.store import to_json
from flashperf.workers import WorkerPool

SUBJECT = "flashperf.cuda.roof_subject:GpuRoofSubject"
LIBRARY = "torch"
_FIXED = {
    "host": (DISPATCH, "launch from Python"),
    "enqueued": (DISPATCH, "launch, enqueued before"),
    "graph": (DISPATCH, "launch in a graph"),
    "event": (TIMER, "recording an event"),
}
Asked = Callable[..., Any]


def gpu_properties() -> GpuProperties:
    """The GPU here. Raises UserError, saying why, where there is none."""
    if reason := available("cuda"):
        raise UserError(f"the roofs of a GPU can't be measured here: {reason}")
    return read_properties()


def gpu_environment(gpu: GpuProperties) -> Environment:
    """The environment now, with the GPU as the device that measurements are of."""
    captured = environment.capture(environment.usable_cores())
    return dataclasses.replace(captured, device=gpu.name)


def one_process(gpu: GpuProperties, notes: list[str]) -> list[tuple[Ceiling, float]]:
    """(ceiling without its values, value) of everything that one fresh process measures; what to beware of in notes."""
    plan = plan_for(gpu)
    notes += plan.notes
    with WorkerPool(1, SUBJECT, {"plan": to_json(plan)}, {}, {}) as pool:
        return ask(pool.workers[0].call, plan, notes)


def ask(call: Asked, plan: GpuPlan, notes: list[str]) -> list[tuple[Ceiling, float]]:
    """Everything that a worker can measure, innermost memory first."""
    sizes = {walk.name: (walk.level_bytes, walk.touched_bytes) for walk in plan.walks}
    found = [
        (_ceiling(SCRATCHPAD, SHARED, how, plan.shared_level_bytes), rate)
        for how, rate in call("shared").items()
    ]
    for level, rates in call("streams").items():
        found += [(_ceiling(MEMORY, level, how, *sizes[level]), rate) for how, rate in rates.items()]
    for how, rate in call("links").items():
        found.append((_ceiling(LINK, "host link", how, 0, plan.link_bytes), rate))
    for number_format, rate in call("peaks").items():
        unit = "fma" if number_format == "f32" else "mma.sync"
        found.append((_ceiling(COMPUTE, number_format, unit), rate))
    for number_format, rate in call("library_peaks").items():
        found.append((_ceiling(COMPUTE, number_format, LIBRARY), rate))
    for how, seconds in call("fixed_costs").items():
        kind, name = _FIXED[how]
        found.append((_ceiling(kind, name, how), seconds))
    state = call("state")
    notes.append(f"timed by {state['timer']}")
    if state["throttled"]:
        notes.append(f"{state['throttled']} samples of the first process ran at a reduced SM clock")
    return found


def _ceiling(kind: str, name: str, how: str, level_bytes: int = 0, used_bytes: int = 0) -> Ceiling:
    return Ceiling(kind, name, how, 1, (), level_bytes, used_bytes)
