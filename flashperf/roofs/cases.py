"""The worker side of a roofline: one case, checked or checked elsewhere, timed with warm and with cold caches.

Cold means that the arrays of the call are in no cache. On a GPU times are the device's, and its L2 was overwritten.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from flashperf import registry
from flashperf.gpu.clock import DeviceClock, DeviceSweep, clock_for
from flashperf.measure import bind_case
from flashperf.problem import Problem
from flashperf.records import Case
from flashperf.roofs.cold import ColdCaches, bound_arrays
from flashperf.roofs.points import WARM
from flashperf.timers import Clock, calibrate, time_calls

SAMPLES, COLD_SAMPLES = 7, 3


class CaseTimer:
    """Times cases in this process."""

    def __init__(self) -> None:
        self._caches: ColdCaches | None = None
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
        with bound_arrays() as bound:
            call, inputs, outputs = problem.bind()
        call()
        calls = calibrate(call, clock)[0]
        times = {WARM: float(np.median([time_calls(call, calls, clock).wall_s for _ in range(SAMPLES)]))}
        if cold:
            state, empty = self._emptying(clock, [*bound, *inputs.values(), *outputs.values()])
            times[state] = float(np.median([_cold_s(call, empty, clock) for _ in range(COLD_SAMPLES)]))
        return times

    def cold_load_rate(self) -> float:
        """Bytes/s of plain loads on the CPU after the caches were emptied as before every cold call."""
        return self._cold_caches().load_rate()

    def _clock(self, backend: str) -> Clock:
        if backend not in self._clocks:
            self._clocks[backend] = clock_for(backend)
        return self._clocks[backend]

    def _emptying(self, clock: Clock, arrays: list[np.ndarray]) -> tuple[str, Callable[[], None]]:
        """The state that the caches are brought into, and what does so for a call with these arrays."""
        if isinstance(clock, DeviceClock):
            sweep = DeviceSweep(clock.device)
            return sweep.state, sweep
        caches, once = self._cold_caches(), list({id(array): array for array in arrays}.values())
        return caches.state, lambda: caches.empty(once)

    def _cold_caches(self) -> ColdCaches:
        """Made when they are first used: what is swept is as large as twice the last cache."""
        if self._caches is None:
            self._caches = ColdCaches()
        return self._caches


def _cold_s(call: Callable[[], object], empty: Callable[[], None], clock: Clock) -> float:
    empty()
    return time_calls(call, 1, clock).wall_s
