"""Clocks, one timed sample, and how many calls a sample needs.

A scripted clock takes the place of the real one.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

#: A sample lasts at least this many timer resolutions, so that reading the clock is below 0.1 % of it ...
RESOLUTIONS_PER_SAMPLE = 1000
#: ... and at least this long, in seconds: calls of a sample share one entry into the loop.
LEAST_SAMPLE_S = 100e-6
MAX_CALLS = 1 << 20


class Clock(Protocol):
    """Where times come from."""

    name: str

    def wall_ns(self) -> int:
        """Monotonic wall time in nanoseconds."""

    def cpu_ns(self) -> int:
        """CPU time of all threads of this process in nanoseconds."""


class SystemClock:
    """``time.perf_counter_ns`` and ``time.process_time_ns``."""

    name = "perf_counter_ns"
    wall_ns = staticmethod(time.perf_counter_ns)
    cpu_ns = staticmethod(time.process_time_ns)


class ScriptedClock:
    """A clock that moves only when told: harness tests call ``advance`` from inside the timed call."""

    name = "scripted"

    def __init__(self, tick_ns: int = 0) -> None:
        """``tick_ns`` is how far each reading of the wall clock moves it."""
        self.now_ns, self.used_ns, self.tick_ns = 0, 0, tick_ns

    def advance(self, seconds: float, cpu_s: float | None = None) -> None:
        """Let ``seconds`` of wall time pass, and as much CPU time unless ``cpu_s`` says otherwise."""
        self.now_ns += round(seconds * 1e9)
        self.used_ns += round((seconds if cpu_s is None else cpu_s) * 1e9)

    def wall_ns(self) -> int:
        self.now_ns += self.tick_ns
        return self.now_ns

    def cpu_ns(self) -> int:
        return self.used_ns


SYSTEM_CLOCK = SystemClock()


@dataclass(frozen=True)
class Sample:
    """Wall and CPU seconds of one call, averaged over the calls of the sample."""

    wall_s: float
    cpu_s: float


@contextmanager
def paused_gc() -> Iterator[None]:
    """No garbage collection inside a timed region, as timeit does."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def time_calls(call: Callable[[], object], calls: int = 1, clock: Clock = SYSTEM_CLOCK) -> Sample:
    """Run ``call`` back to back ``calls`` times between two readings of the clocks.

    A clock with a ``time_calls`` of its own (``flashperf.gpu.clock``) times them itself: those calls return before
    their work is done.
    """
    itself = getattr(clock, "time_calls", None)
    if itself is not None:
        with paused_gc():
            sample: Sample = itself(call, calls)
        return sample
    repeats = range(calls)
    with paused_gc():
        cpu_ns = clock.cpu_ns()
        start_ns = clock.wall_ns()
        for _ in repeats:
            call()
        wall_ns = clock.wall_ns() - start_ns
        cpu_ns = clock.cpu_ns() - cpu_ns
    return Sample(wall_ns * 1e-9 / calls, cpu_ns * 1e-9 / calls)


def resolution_s(clock: Clock = SYSTEM_CLOCK, readings: int = 1000) -> float:
    """The smallest step seen between two readings of the wall clock, in seconds; it includes reading it."""
    smallest = math.inf
    for _ in range(readings):
        before = clock.wall_ns()
        step = clock.wall_ns() - before
        if 0 < step < smallest:
            smallest = step
    return smallest * 1e-9 if math.isfinite(smallest) else 0.0


def calibrate(
    call: Callable[[], object], clock: Clock = SYSTEM_CLOCK, least_s: float = 0.0
) -> tuple[int, float]:
    """How many calls make a sample of at least ``least_s`` seconds, and about how long one call takes.

    A sample is never shorter than LEAST_SAMPLE_S or RESOLUTIONS_PER_SAMPLE resolutions. Doubles the calls
    until a trial is long enough. Raises ValueError if the clock stands still over MAX_CALLS calls.
    """
    least_s = max(least_s, LEAST_SAMPLE_S, RESOLUTIONS_PER_SAMPLE * resolution_s(clock))
    calls = 1
    while True:
        one_s = _undisturbed_s(call, calls, clock, 100 * least_s)
        if one_s * calls >= least_s:
            return max(1, math.ceil(least_s / one_s)), one_s
        if calls >= MAX_CALLS:
            if one_s <= 0:
                raise ValueError(f"the clock {clock.name} stood still over {calls} calls")
            return calls, one_s
        calls *= 2


def _undisturbed_s(call: Callable[[], object], calls: int, clock: Clock, long_s: float) -> float:
    """The fastest of three trials: a slow trial must not pass for a slow call. A long one is enough alone."""
    fastest = math.inf
    for _ in range(3):
        fastest = min(fastest, time_calls(call, calls, clock).wall_s)
        if fastest * calls >= long_s:
            break
    return fastest
