"""The rules of other tools, as pure functions on samples: what they would have said of the same code.

Samples are taken as those tools take them: all of one side, then all of the other, nothing interleaved. The rules
are restated from the tools' documentation and behaviour (pytest-benchmark 5.3, pyperf 2.10, asv 0.6).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from scipy import stats

Samples = Sequence[Sequence[float]]  # by process, seconds
PRECISION, CONFIDENCE, LEAST_ROUNDS = 0.01, 0.95, 5
ASV_P = 0.002


@dataclass(frozen=True)
class Said:
    """What a rule found: its ratio of times, and whether its own test, if it has one, calls it a difference."""

    ratio: float
    significant: bool = True

    def slower(self, threshold: float) -> bool:
        """Whether it fails a run whose threshold is this fraction."""
        return self.significant and self.ratio > 1 + threshold


def pytest_benchmark_mean(before: Samples, now: Samples) -> Said:
    """``--benchmark-compare-fail=mean:D%``: the means of one process's rounds, no test."""
    return Said(float(np.mean(now[0]) / np.mean(before[0])))


def until_precise(rounds: Sequence[float]) -> Sequence[float]:
    """The rounds that ``--benchmark-precision`` would have taken: until the margin of the mean is small enough."""
    z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
    values = np.asarray(rounds)
    for n in range(LEAST_ROUNDS, len(values)):
        part = values[:n]
        if z * part.std(ddof=1) / math.sqrt(n) / part.mean() <= PRECISION:
            return rounds[:n]
    return rounds


def pytest_benchmark_precise(before: Samples, now: Samples) -> Said:
    """The same with ``--benchmark-precision=0.01``."""
    return pytest_benchmark_mean([until_precise(before[0])], [until_precise(now[0])])


def pyperf_compare(before: Samples, now: Samples) -> Said:
    """``pyperf compare_to``: a two-sided t test of all values at 95 %; ``--min-speed`` is the threshold."""
    a, b = (np.concatenate([np.asarray(one) for one in side]) for side in (before, now))
    return Said(float(b.mean() / a.mean()), bool(stats.ttest_ind(a, b).pvalue <= 0.05))


def asv_compare(before: Samples, now: Samples) -> Said:
    """asv: Mann-Whitney U at p < 0.002 on all samples, and the ratio of medians against its factor."""
    a, b = (np.concatenate([np.asarray(one) for one in side]) for side in (before, now))
    different = bool(stats.mannwhitneyu(a, b).pvalue < ASV_P)
    return Said(float(np.median(b) / np.median(a)), different)


#: Name -> (rule, whether it looks at one long window of one process instead of short ones of several).
RULES: dict[str, tuple[Callable[[Samples, Samples], Said], bool]] = {
    "pytest-benchmark, mean": (pytest_benchmark_mean, True),
    "pytest-benchmark, precision": (pytest_benchmark_precise, True),
    "pyperf": (pyperf_compare, False),
    "asv": (asv_compare, False),
}


def all_rules(short: Sequence[Samples], long: Sequence[Samples]) -> dict[str, Said]:
    """What each says of samples of shape (2, processes, samples): short windows of all, a long one of the first."""
    return {name: rule(*(long if one else short)) for name, (rule, one) in RULES.items()}
