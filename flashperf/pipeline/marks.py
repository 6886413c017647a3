"""When things happened in a run, and the times that follow from it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass
class RunTimes:
    """What one run took, in seconds.

    first_s:     to a task's first logits, mean over tasks, from its arrival
    total_s:     in all
    kernel_s, staged_s: in calls that compute, and in copies of weights, where the run was profiled
    latencies_s: of each task, from its arrival to its last logits
    queued_s:    of each task, from its arrival to its admission
    """

    first_s: float = 0.0
    total_s: float = 0.0
    kernel_s: float = 0.0
    staged_s: float = 0.0
    latencies_s: np.ndarray = field(default_factory=lambda: np.zeros(0))
    queued_s: np.ndarray = field(default_factory=lambda: np.zeros(0))


class Marks:
    """Takes the time at the events of a run; adds up afterwards."""

    def __init__(self) -> None:
        self._turns: list[tuple[int, float]] = []
        self._logits: list[tuple[tuple[tuple[int, int], ...], float, float]] = []
        self._begin = time.perf_counter()

    def turn(self, clock: int) -> None:
        """The scheduler begins an iteration."""
        self._turns.append((clock, time.perf_counter()))

    def logits(self, which: tuple[tuple[int, int], ...]) -> None:
        """The logits of these (task, step) are there."""
        self._logits.append((which, self._turns[-1][1], time.perf_counter()))

    def times(self, arrivals: Sequence[int]) -> RunTimes:
        """The run ends now. A task arrives when the first iteration at or after its time begins."""
        end = time.perf_counter()
        tasks = len(arrivals)
        admitted, first, last = (np.zeros(tasks) for _ in range(3))
        for which, turn, now in self._logits:
            for task, step in which:
                if step == 0:
                    admitted[task], first[task] = turn, now
                last[task] = now
        clocks, begins = (np.array(column) for column in zip(*self._turns, strict=True))
        arrived = begins[np.searchsorted(clocks, arrivals)]
        return RunTimes(
            float(np.mean(first - arrived)),
            end - self._begin,
            latencies_s=last - arrived,
            queued_s=admitted - arrived,
        )
