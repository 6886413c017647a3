"""Calls timed in turns, for the scripts beside it: every round times each call once, in random order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from flashperf.stats import t_interval
from flashperf.timers import calibrate, time_calls

LEAST_S = 500e-6  # of a sample, far above the clock's resolution
TRIALS = 3  # a sample from which the core was taken away says nothing about the call
NOTE = "means over the rounds of this one process, with 95 % intervals over them: another process may differ by more"


def in_turns(calls: Sequence[Callable[[], Any]], rounds: int, seed: int = 0) -> np.ndarray:
    """Seconds per call, shape [rounds, calls]: the fastest of TRIALS samples, which follow an untimed call."""
    rng = np.random.default_rng(seed)
    counts = [calibrate(call, least_s=LEAST_S)[0] for call in calls]
    seconds = np.empty((rounds, len(calls)))
    for row in seconds:
        for number in rng.permutation(len(calls)):
            calls[number]()
            trials = [time_calls(calls[number], counts[number]).wall_s for _ in range(TRIALS)]
            row[number] = min(trials)
    return seconds


def with_interval(values: np.ndarray, scale: float) -> str:
    """The mean of one value per round, shape [rounds], and its 95 % interval."""
    found = t_interval(values)
    return "{:.4g} [{:.4g}, {:.4g}]".format(*(scale * x for x in (found.value, found.low, found.high)))
