"""The worker side of a roofline: one case, checked or checked elsewhere, timed with warm and with cold caches."""

from __future__ import annotations

import numpy as np

from flashperf import registry
from flashperf.blocks import CacheSweep
from flashperf.environment import last_level_cache_bytes
from flashperf.measure import bind_case
from flashperf.problem import Problem
from flashperf.records import Case
from flashperf.roofs.points import WARM
from flashperf.timers import calibrate, time_calls

SAMPLES, COLD_SAMPLES = 7, 3


class CaseTimer:
    """Times cases in this process."""

    def __init__(self) -> None:
        self._sweep: CacheSweep | None = None

    def time_case(self, case_id: str, check: bool, cold: bool) -> dict[str, float]:
        """State of the caches -> median seconds of one call on fresh buffers.

        Raises WrongResult if the case is checked and wrong, UnavailableError if it can't run here.
        """
        case = Case.parse(case_id)
        mechanism = registry.mechanism(case.mechanism)
        if check:
            problem = bind_case(mechanism, case).problem
        else:  # another process checks the same inputs
            problem = Problem(mechanism, case, mechanism.make_inputs(case), mechanism.outputs(case), {})
        call = problem.bind()[0]
        call()
        calls = calibrate(call)[0]
        times = {WARM: float(np.median([time_calls(call, calls).wall_s for _ in range(SAMPLES)]))}
        if cold:
            times[self.sweep.state] = float(np.median([self._cold_s(call) for _ in range(COLD_SAMPLES)]))
        return times

    @property
    def sweep(self) -> CacheSweep:
        """Made when it is first used: it is as large as twice the last cache."""
        if self._sweep is None:
            self._sweep = CacheSweep(last_level_cache_bytes())
        return self._sweep

    def _cold_s(self, call: object) -> float:
        self.sweep()
        return time_calls(call, 1).wall_s  # type: ignore[arg-type]
