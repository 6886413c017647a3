"""Seconds of every planned call, predicted: its work over roofs. Host work has no roof and is left out by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from flashperf.cuda.launcher import source
from flashperf.cuda.pipeline import steps
from flashperf.emulator import Launch
from flashperf.forecast.work import Work, work_of
from flashperf.gpus import GRAPH_LAUNCH_S, LAUNCH_S, Gpu
from flashperf.machine_code import KernelCode, compile_kernels, occupancy, why_not
from flashperf.machine_code.compiler import two_at_a_time
from flashperf.pipeline.engine import PlannedCall, RecordingEngine
from flashperf.predict.roofs import peak, unit_of


@dataclass(frozen=True)
class Price:
    """Seconds of one call, what they are spent on (one of KINDS), the occupancy of its kernels where it is known."""

    seconds: float
    kind: str
    occupancy: float | None = None


KINDS = ("memory", "compute", "launch", "link", "dispatch", "left out")
_TURNS = 4  # calls of one kind that take turns in isolation, as layers do in the model
_BY_HOST = ("stage_", "fresh_pages")  # copies and memory: no kernel
_LEFT_OUT = Price(0.0, "left out")


class PricingEngine(RecordingEngine):
    """Records calls as RecordingEngine does, and keeps one of each kind, by key, to be priced."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[str, PlannedCall] = {}

    def prepare(self, kernel: str, *arrays: np.ndarray, **scalars: float) -> PlannedCall:
        call = super().prepare(kernel, *arrays, **scalars)
        self.calls[call.key] = call
        return call


def price_all(
    keys: set[str], calls: dict[str, PlannedCall], of_call: Callable[[PlannedCall], Price], dispatch_s: float
) -> dict[str, Price]:
    """The price of every key; what the host does is left out, but for ``dispatch_s`` of each call dispatched alone."""
    found = {}
    for key in keys:
        call = calls.get(key.partition("@")[0])
        if key.startswith("host_dispatch("):
            found[key] = Price(dispatch_s, "dispatch") if dispatch_s else _LEFT_OUT
        elif call is None or call.kernel == "fresh_pages":
            found[key] = _LEFT_OUT
        else:
            found[key] = of_call(call)
    return found


def largest(memory_s: float, compute_s: float, launch_s: float) -> Price:
    """The largest of three least times, and which it is."""
    by_kind = {"memory": memory_s, "compute": compute_s, "launch": launch_s}
    kind = max(by_kind, key=lambda name: by_kind[name])
    return Price(by_kind[kind], kind)


def modules_of(calls: Iterable[PlannedCall]) -> set[str]:
    """The ``.cu`` files of what these calls launch."""
    on_device = (call for call in calls if not call.kernel.startswith(_BY_HOST))
    return {step.module for call in on_device for step in steps(call.kernel, call.arrays, call.scalars)}


def machine_code(modules: Iterable[str], architecture: str) -> dict[str, dict[str, KernelCode]]:
    """Module -> its kernels, compiled two files at a time; empty where there is no compiler."""
    if why_not():
        return {}
    with two_at_a_time() as pool:
        made = {name: pool.submit(compile_kernels, source(name), architecture) for name in modules}
        return {name: future.result() for name, future in made.items()}


def gpu_price(
    gpu: Gpu, seen: float, code: Mapping[str, Mapping[str, KernelCode]]
) -> Callable[[PlannedCall], Price]:
    """Prices of calls on a GPU: each launch inside a graph, weights that are streamed over its link."""

    def price(call: PlannedCall) -> Price:
        if call.kernel.startswith("stage_"):
            return Price(LAUNCH_S + call.arrays[0].nbytes / gpu.link_bytes_per_s, "link")
        work = work_of(call, seen)
        launched = steps(call.kernel, call.arrays, call.scalars)
        found = [(code.get(step.module, {}).get(step.launch.kernel), step.launch) for step in launched]
        known = [(kernel, launch) for kernel, launch in found if kernel is not None]
        unit = unit_of(work.number_format, [kernel for kernel, _ in known] or None)
        blocks = max(prod(step.launch.grid) for step in launched)
        price = largest(
            work.bytes / gpu.bytes_per_s,
            work.flops / (peak(gpu, unit) * min(1.0, blocks / gpu.sms)),
            len(launched) * GRAPH_LAUNCH_S,
        )
        held = [_occupancy(gpu, kernel, launch) for kernel, launch in known]
        return replace(price, occupancy=sum(held) / len(held)) if held else price

    return price


def _occupancy(gpu: Gpu, kernel: KernelCode, launch: Launch) -> float:
    shared = kernel.static_shared_bytes, launch.shared_bytes
    return occupancy(gpu.architecture, prod(launch.block), kernel.registers, *shared).fraction


def roof_price(roofs: Any, working_set_bytes: int, seen: float) -> Callable[[PlannedCall], Price]:
    """Prices of calls on this CPU, from its measured roofs.

    ``working_set_bytes``: what passes between two calls of a kind, which decides the memory level; 0: only the arrays
    of four such calls, as when they are timed in isolation.
    """

    def price(call: PlannedCall) -> Price:
        if call.kernel.startswith("stage_"):
            work = Work(0, 2 * int(call.arrays[0].nbytes), "f32")
        else:
            work = work_of(call, seen)
        passed, written = max(working_set_bytes, _TURNS * work.bytes), int(call.arrays[-1].nbytes)
        roof = roofs.roof(work.number_format, work.bytes, passed, written_bytes=written)
        return largest(work.bytes / roof.bytes_per_s, work.flops / roof.flops_per_s, roof.launch_s)

    return price
