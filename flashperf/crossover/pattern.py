"""Where the confident signs of a scan change. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from flashperf.crossover.fit import CONFIDENCE, confident_signs
from flashperf.stats import t_quantile


@dataclass(frozen=True)
class Bracket:
    """A change of sign between two confident sizes: ``low``, where the ratio has ``sign_below``, and ``high``."""

    low: int
    high: int
    sign_below: int

    def centre(self, sizes: Sequence[int], means: np.ndarray) -> float:
        """Where the line through the means first crosses zero inside the bracket; its middle if it doesn't."""
        inside = [n for n, size in enumerate(sizes) if self.low <= size <= self.high]
        for left, right in pairwise(inside):
            a, b = means[left] * self.sign_below, means[right] * self.sign_below
            if a > 0 >= b:
                share = a / (a - b)
                return math.exp((1 - share) * math.log(sizes[left]) + share * math.log(sizes[right]))
        return math.sqrt(self.low * self.high)


def strict_t(workers: int, tests: int) -> float:
    """The |t| that one of so many tests exceeds by chance in 5 % of scans."""
    return t_quantile(1 - (1 - CONFIDENCE) / tests, workers - 1)


def changes(sizes: Sequence[int], t: np.ndarray, workers: int) -> list[Bracket]:
    """The changes of sign from the smallest size to the largest; t has a value for each size.

    A stretch of one sign is believed if two neighbours have it, or if its one size is confident among all that were
    tested: where both sides take the same time, one sign in twenty is there by chance.
    """
    signs = confident_signs(t, workers)
    limit = strict_t(workers, len(sizes))
    runs = _runs(signs)
    while weak := [run for run in runs if len(run) == 1 and abs(t[run[0]]) <= limit]:
        signs[min(weak, key=lambda run: float(abs(t[run[0]])))] = 0
        runs = _runs(signs)
    return [Bracket(sizes[left[-1]], sizes[right[0]], int(signs[left[0]])) for left, right in pairwise(runs)]


def _runs(signs: np.ndarray) -> list[list[int]]:
    """Positions of the signs that are not 0, in groups of neighbours of one sign."""
    runs: list[list[int]] = []
    for position in np.flatnonzero(signs):
        if runs and signs[runs[-1][-1]] == signs[position]:
            runs[-1].append(int(position))
        else:
            runs.append([int(position)])
    return runs
