"""The worker side of a roofline: one case, checked or checked elsewhere, timed with warm and with cold caches.

On a GPU by the device's clock; cold means that its L2 was overwritten.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from flashperf import registry
from flashperf.blocks import CacheSweep
from flashperf.environment import last_level_cache_bytes
from flashperf.gpu.clock import DeviceClock, DeviceSweep, clock_for
from flashperf.measure import bind_case
from flashperf.problem import Problem
from flashperf.records import Case
from flashperf.roofs.points import WARM
from flashperf.timers import Clock, calibrate, time_calls

SAMPLES, COLD_SAMPLES = 7, 3


class CaseTimer:
    """Times cases in this process."""

    def __init__(self) -> None:
        self._sweep: CacheSweep | None = None
        self._clocks: dict[str, Clock] = {}

    def time_case(self, case_id: str, check: bool, cold: bool) -> dict[str, float]:
        """State of the caches -> median seconds of one call on fresh buffers.

        Raises WrongResult if the case is checked and wrong, UnavailableError if it can't run here.
        """
        case = Case.parse(case_id)
        mechanism = registry.mechanism(case.mechanism)
        clock = self._clock(case.backend)
        if check:
            problem = bind_case(mechanism, case, clock).problem
        else:  # another process checks the same inputs
            problem = Problem(mechanism, case, mechanism.make_inputs(case), mechanism.outputs(case), {})
        call = problem.bind()[0]
        call()
        calls = calibrate(call, clock)[0]
        times = {WARM: float(np.median([time_calls(call, calls, clock).wall_s for _ in range(SAMPLES)]))}
        if cold:
            sweep = self._sweep_for(clock)
            times[sweep.state] = float(np.median([_cold_s(call, sweep, clock) for _ in range(COLD_SAMPLES)]))
        return times

    def _clock(self, backend: str) -> Clock:
        if backend not in self._clocks:
            self._clocks[backend] = clock_for(backend)
        return self._clocks[backend]

    def _sweep_for(self, clock: Clock) -> CacheSweep | DeviceSweep:
        """On a CPU made when it is first used: it is as large as twice the last cache."""
        if isinstance(clock, DeviceClock):
            return DeviceSweep(clock.device)
        if self._sweep is None:
            self._sweep = CacheSweep(last_level_cache_bytes())
        return self._sweep


def _cold_s(call: Callable[[], object], sweep: Callable[[], None], clock: Clock) -> float:
    sweep()
    return time_calls(call, 1, clock).wall_s
