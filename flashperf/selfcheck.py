"""Attribution tested on causes that were planted: are the shares recovered, do the intervals cover?

Runs of the dummy pipeline of ``flashperf.planted`` are simulated with recorded noise replayed
(``selfcheck_attribution``), so that the truth is known, or really burnt in fresh processes
(``selfcheck_real``), where only the direction of a share is.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from flashperf.attribution import (
    Group,
    Observation,
    attribute,
    confirmation_groups,
    cycle_groups,
    screen_interactions,
    shapley,
)
from flashperf.attribution.shapley import signs
from flashperf.noise import Noise, load_noise, record
from flashperf.planted import SWITCHES, K, mask_of, planted_log_times, selfcheck_real
from flashperf.records import Attribution, Interval

STANDARD_S = 0.027
PLACEMENT_SD = 0.01  # each process has its own share of every switch, this far from the mean in log units
WORKERS, CYCLES = 9, 2
MAX_BIAS_POINTS = 0.5
COVERAGE = (0.92, 0.98)


@dataclass(frozen=True)
class SelfcheckRow:
    """One recovered quantity: true and mean recovered ratio, bias in points of the log slowdown, coverage."""

    name: str
    true_ratio: float
    recovered_ratio: float
    bias_points: float
    half_width_points: float
    coverage: float

    @property
    def passed(self) -> bool:
        """Bias at most 0.5 points and coverage from 92 to 98 %."""
        return abs(self.bias_points) <= MAX_BIAS_POINTS and COVERAGE[0] <= self.coverage <= COVERAGE[1]


@dataclass(frozen=True)
class SelfcheckReport:
    """What a self-check found.

    aa_coverage: how often the total's interval of two identical variants holds 1
    interaction_found, interaction_coverage: how often the planted pair was screened and confirmed, and how
    often its 98.3 % interval on the standard background held the truth where it was screened
    """

    rows: tuple[SelfcheckRow, ...]
    aa_coverage: float
    interaction_found: float
    interaction_coverage: float
    runs: int
    calls_per_run: int
    noise: str
    seconds: float

    @property
    def passed(self) -> bool:
        """Every row within its limits, and identical variants judged equal at the same rate."""
        return all(row.passed for row in self.rows) and COVERAGE[0] <= self.aa_coverage <= COVERAGE[1]

    def lines(self) -> list[str]:
        """The report as text, a line per row."""
        head = f"{'planted':<10}{'true':>8}{'recovered':>11}{'bias':>10}{'half-width':>12}{'coverage':>10}"
        text = [f"{self.runs} runs of {WORKERS} workers x {CYCLES} cycles ({self.calls_per_run} calls a run)"]
        text += [self.noise, "", head]
        for row in self.rows:
            measured = (
                f"{row.recovered_ratio:>11.3f}{row.bias_points:>+7.2f} pp{row.half_width_points:>9.2f} pp"
            )
            limits = "" if row.passed else "  outside limits"
            text.append(f"{row.name:<10}{row.true_ratio:>8.3f}{measured}{row.coverage:>10.1%}{limits}")
        text += [
            "",
            f"identical variants: the total's 95 % interval holds 1 in {self.aa_coverage:.1%} of runs",
        ]
        text.append(
            f"pair_a x pair_b: screened and confirmed in {self.interaction_found:.1%} of runs, "
            f"{self.interaction_coverage:.1%} of its 98.3 % intervals hold the truth"
        )
        verdict = "passed" if self.passed else "FAILED"
        limits = f"bias at most {MAX_BIAS_POINTS} pp, coverage {COVERAGE[0]:.0%}-{COVERAGE[1]:.0%}"
        return [*text, f"{verdict} ({limits}), {self.seconds:.0f} s"]


def _replay(
    worker: int,
    groups: Sequence[tuple[int, Group]],
    log_times: np.ndarray,
    noise: Noise,
    rng: np.random.Generator,
) -> list[Observation]:
    """One worker's calls, back to back, with consecutive recorded noise on top of the planted times."""
    calls = np.array([mask for _, group in groups for mask in group.masks])
    seconds = iter((STANDARD_S * np.exp(log_times[calls] + noise.replay(calls.size, rng))).tolist())
    return [
        Observation(worker, cycle, group, tuple(next(seconds) for _ in group.masks))
        for cycle, group in groups
    ]


def simulate(
    log_times: np.ndarray, noise: Noise, rng: np.random.Generator, confirm: bool = False
) -> Attribution:
    """One whole attribution of a planted table, shape (2**k,): 9 workers, 2 cycles each.

    ``confirm``: also screen for interactions and run two rounds of confirmation blocks.
    """
    placed = signs(np.arange(1 << K), K) @ rng.normal(0, PLACEMENT_SD / 2, (K, WORKERS))
    observations: list[Observation] = []
    for worker in range(WORKERS):
        groups = [(cycle, group) for cycle in range(CYCLES) for group in cycle_groups(K, rng)]
        observations += _replay(worker, groups, log_times + placed[:, worker], noise, rng)
    if confirm:
        pairs = [candidate.switches for candidate in screen_interactions(observations, K)]
        for worker in range(WORKERS):
            groups = [(c, group) for c in range(2) for group in confirmation_groups(pairs, K, worker, rng)]
            observations += _replay(worker, groups, log_times + placed[:, worker], noise, rng)
    return attribute(observations, SWITCHES)


def _holds(interval: Interval, truth: float) -> bool:
    return interval.low <= truth <= interval.high


def selfcheck_attribution(
    runs: int = 400,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
    noise: Noise | None = None,
) -> SelfcheckReport:
    """Plant the causes, replay noise, attribute, ``runs`` times; then as often with two identical variants.

    ``progress`` is called with (done, all) after every run. Raises ValueError if the noise can't be read.
    """
    start = time.perf_counter()
    source = noise or load_noise()
    rng = np.random.default_rng(seed)
    table = planted_log_times()
    truth = np.append(shapley(table), table[-1])
    pair, i, j = ("pair_a", "pair_b"), mask_of(["pair_a"]), mask_of(["pair_b"])
    effect = math.exp(table[i | j] - table[i] - table[j])
    intervals: list[list[Interval]] = []
    found: list[Interval] = []
    confirmed = equal = calls = 0
    for done in range(runs):
        result = simulate(table, source, rng, confirm=True)
        calls = result.runs
        intervals.append([*(share.share for share in result.shares), result.total])
        screened = [x for x in result.interactions if x.switches == pair]
        found += [x.ratio_on_standard for x in screened]
        confirmed += any(x.confirmed for x in screened)
        equal += _holds(simulate(np.zeros_like(table), source, rng).total, 1.0)
        if progress:
            progress(done + 1, runs)
    names = [*(switch.name for switch in SWITCHES), "total"]
    rows = [_row(name, truth[n], [run[n] for run in intervals], table[-1]) for n, name in enumerate(names)]
    return SelfcheckReport(
        rows=tuple(rows),
        aa_coverage=equal / runs,
        interaction_found=confirmed / runs,
        interaction_coverage=float(np.mean([_holds(x, effect) for x in found])) if found else math.nan,
        runs=runs,
        calls_per_run=calls,
        noise=f"noise replayed: {source.about}; sd {source.sd:.1%}, lag-1 correlation {source.lag1:.2f}",
        seconds=time.perf_counter() - start,
    )


def _row(name: str, truth: float, intervals: Sequence[Interval], total: float) -> SelfcheckRow:
    points = 100 / total
    logs = np.log([[x.low, x.value, x.high] for x in intervals])
    covered = (logs[:, 0] <= truth) & (truth <= logs[:, 2])
    mean = float(logs[:, 1].mean())
    width = float(np.median(logs[:, 2] - logs[:, 0])) / 2
    return SelfcheckRow(
        name, math.exp(truth), math.exp(mean), points * (mean - truth), points * width, float(covered.mean())
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """``python -m flashperf.selfcheck``: 0 passed or recorded, 1 failed."""
    parser = argparse.ArgumentParser(
        prog="python -m flashperf.selfcheck", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--record-noise", type=float, metavar="SECONDS", help="record this machine's noise anew"
    )
    parser.add_argument("--real", action="store_true", help="burn the causes; directions only")
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    if options.record_noise:
        noise = record(options.record_noise)
        print(f"{noise.about}; sd {noise.sd:.1%}, lag-1 correlation {noise.lag1:.2f}")
        return 0
    report = (
        selfcheck_real(seed=options.seed)
        if options.real
        else selfcheck_attribution(options.runs, options.seed)
    )
    print("\n".join(report.lines()))
    return 0 if report.passed else 1


if __name__ == "__main__":
    sys.exit(main())
