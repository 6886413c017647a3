"""Frozen canaries: work that never changes, timed around every bench, so that saved runs can be set against it.

Of a bench's own kind and working set: a compute canary says nothing about a copy. A mechanism's standard variant
can't serve, since what it shares with the variant would cancel. VERSION goes with csrc/cpu/canary.cpp.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from flashperf.dtypes import aligned_empty
from flashperf.errors import UserError
from flashperf.native import prepare
from flashperf.records import Case, Mechanism
from flashperf.suggest import unknown_name
from flashperf.timers import SYSTEM_CLOCK, Clock, calibrate, time_calls

VERSION = 1
#: sha256 of csrc/cpu/canary.cpp, first 16 digits: a test holds the file to it.
SOURCE_HASH = "04d0b0869386d4df"
SAMPLES = 8  # of a canary before, and as many after a bench's blocks ...
FEW_SAMPLES, LONG_CALL_S = 4, 2e-3  # ... or this many of one that takes this long
#: Bytes that a canary touches, by working-set class: well inside a cache level, or far outside all of them.
WORKING_SETS = {"l1": 16 << 10, "l2": 256 << 10, "l3": 6 << 20, "memory": 48 << 20}
KINDS = ("compute", "bandwidth", "dispatch", "page_fault")
_COMPUTE_INTENSITY = 8.0  # FLOPs per byte: above it, no core waits for memory that it streams
_SMALL_CALL_BYTES, _SMALL_CALL_FLOPS = 8 << 10, 32_000  # below both, entering the call is most of it
_PAGES = 64
_DISPATCH_CALLS = 64
_PASSES = 64


@dataclass(frozen=True)
class Canary:
    """One canary by name: ``compute/l1``, ``bandwidth/l2``, ``dispatch/l1``, ``page_fault/l2``."""

    kind: str
    working_set: str

    @property
    def name(self) -> str:
        return f"{self.kind}/{self.working_set}"

    @staticmethod
    def parse(text: str) -> Canary:
        """The canary called ``kind`` or ``kind/class``. Raises UserError for an unknown one."""
        kind, _, working_set = text.partition("/")
        default = "l2" if kind == "bandwidth" else "l1"
        if kind not in KINDS:
            raise UserError(unknown_name("kind of canary", kind, KINDS))
        if (working_set or default) not in WORKING_SETS:
            raise UserError(unknown_name("working-set class", working_set, WORKING_SETS))
        return Canary(kind, working_set or default)


def canary_of(mechanism: Mechanism, case: Case) -> Canary:
    """The canary of a case by what a call does: it allocates, is hardly more than its entry, computes or streams."""
    cost = mechanism.cost(case)
    size = working_set(mechanism.ideal_bytes(case))
    launches = max(1, cost.launches)
    if cost.allocations:
        return Canary("page_fault", "l2")
    if cost.bytes / launches <= _SMALL_CALL_BYTES and cost.flops / launches <= _SMALL_CALL_FLOPS:
        return Canary("dispatch", "l1")
    if cost.flops >= _COMPUTE_INTENSITY * cost.bytes:
        return Canary("compute", "l1")
    return Canary("bandwidth", size)


def working_set(size_bytes: int) -> str:
    """The smallest class whose canary touches at least about as much."""
    return next((name for name, size in WORKING_SETS.items() if size_bytes <= 4 * size), "memory")


def build(canary: Canary) -> Callable[[], None]:
    """A canary's call on fresh buffers."""
    floats = WORKING_SETS[canary.working_set] // 8  # two arrays of four bytes an element
    if canary.kind == "page_fault":
        return prepare("canary_page_fault", aligned_empty((1,), "f32"), pages=_PAGES)
    if canary.kind == "dispatch":
        floats = 64
    x = aligned_empty((floats,), "f32")
    x[...] = np.linspace(0.5, 1.5, floats, dtype=np.float32)
    y = aligned_empty((floats,), "f32")
    y[...] = 0
    if canary.kind == "compute":
        return prepare("canary_compute", x, y, passes=_PASSES)
    call = prepare(f"canary_{canary.kind}", x, y)
    if canary.kind == "bandwidth":
        return call

    def many() -> None:
        for _ in range(_DISPATCH_CALLS):
            call()

    return many


class CanaryTimer:
    """Times one canary: fresh buffers, then its samples, each after an untimed call."""

    def __init__(self, canary: Canary, clock: Clock = SYSTEM_CLOCK) -> None:
        self.canary, self._clock = canary, clock
        self._calls, one_s = calibrate(build(canary), clock)
        self._samples = FEW_SAMPLES if one_s > LONG_CALL_S else SAMPLES

    def run(self) -> list[float]:
        """Seconds per call of each sample."""
        call = build(self.canary)
        times = []
        for _ in range(self._samples):
            call()
            times.append(time_calls(call, self._calls, self._clock).wall_s)
        return times
