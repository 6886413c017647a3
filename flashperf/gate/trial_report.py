"""What recorded trials say of the gate: false alarms, detections, spreads, and the other tools beside it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from flashperf.gate.power import Rates, suite_verdicts
from flashperf.gate.rule import ALPHA, PASSED, SLOWER
from flashperf.gate.text import short_name
from flashperf.gate.trials import SuiteTrial

THRESHOLDS = (0.02, 0.05)
POWER = 0.8


@dataclass(frozen=True)
class Count:
    """k of n, with the exact 95 % upper bound of the rate (Clopper and Pearson 1934)."""

    k: int
    n: int

    @property
    def rate(self) -> float:
        return self.k / self.n if self.n else math.nan

    @property
    def upper(self) -> float:
        """One-sided."""
        return 1.0 if self.k >= self.n else float(stats.beta.ppf(0.95, self.k + 1, self.n - self.k))

    def __str__(self) -> str:
        if not self.n:
            return "none"
        return f"{self.k} of {self.n} ({self.rate:.1%})"


def suites_of(trials: Sequence[SuiteTrial], effect: float) -> list[np.ndarray]:
    """Log ratios of the suites with this effect, each of shape (benches, pairs)."""
    return [np.array([bench.log_ratios for bench in t.benches]) for t in trials if t.effect == effect]


def called(suites: Sequence[np.ndarray], threshold: float, words: Sequence[str]) -> tuple[Count, Count]:
    """Benches, and suites with at least one, whose verdict is among ``words``."""
    hits = [sum(v.verdict in words for v in suite_verdicts(suite, threshold)) for suite in suites]
    return Count(sum(hits), sum(len(s) for s in suites)), Count(sum(h > 0 for h in hits), len(suites))


def coverage(suites: Sequence[np.ndarray], truth: float = 0.0) -> Count:
    """How many of the plain 95 % intervals hold the truth (log ratio)."""
    held = n = 0
    for suite in suites:
        half = stats.t.ppf(0.975, suite.shape[1] - 1) * suite.std(axis=1, ddof=1) / math.sqrt(suite.shape[1])
        held += int((np.abs(suite.mean(axis=1) - truth) <= half).sum())
        n += suite.shape[0]
    return Count(held, n)


def smallest_found(pair_sd: float, pairs: int, threshold: float, benches: int) -> float:
    """The slowdown that is called slower than D with 80 % power, a fraction: Holm's first step among ``benches``."""
    df = pairs - 1
    reach = stats.t.ppf(1 - ALPHA / benches, df) + stats.t.ppf(POWER, df)
    return math.expm1(math.log1p(threshold) + float(reach) * pair_sd / math.sqrt(pairs))


def trial_lines(trials: Sequence[SuiteTrial]) -> Iterator[str]:
    """The report of recorded trials."""
    same = suites_of(trials, 0.0)
    first = trials[0]
    loads = [t.load for t in trials if t.load is not None]
    busy = f", load {min(loads):.1f} to {max(loads):.1f}" if loads else ""
    yield (
        f"measured: {len(trials)} suites of {len(first.benches)} benches in {first.pairs} process pairs, "
        f"{first.budget_s:g} s a bench{busy}"
    )
    if same:
        yield from _identical(same)
        yield from _spreads(trials)
    yield from _planted(trials)
    yield from _others(trials)


def _identical(same: Sequence[np.ndarray]) -> Iterator[str]:
    yield f"identical code, {len(same)} suites"
    for threshold in THRESHOLDS:
        benches, suites = called(same, threshold, (SLOWER,))
        certified = called(same, threshold, PASSED)[0]
        yield (
            f"  D = {threshold:.0%}: false 'slower' {benches} benches, {suites} suites "
            f"(at 95 % below {benches.upper:.2%} and {suites.upper:.1%}); certified {certified.rate:.0%}"
        )
    held = coverage(same)
    yield f"  95 % intervals that hold 1: {held}"


def _spreads(trials: Sequence[SuiteTrial]) -> Iterator[str]:
    first = trials[0]
    yield "  bench: pair sd, and the smallest slowdown found with 80 % power at D = 2 % and 5 %"
    for place, bench in enumerate(first.benches):
        values = np.array([t.benches[place].log_ratios for t in trials])
        sd = float(np.sqrt(values.var(axis=1, ddof=1).mean()))
        least = [smallest_found(sd, first.pairs, d, len(first.benches)) for d in THRESHOLDS]
        yield f"    {short_name(bench.name):<60} {sd:>6.2%} {least[0]:>7.1%} {least[1]:>7.1%}"


def _planted(trials: Sequence[SuiteTrial]) -> Iterator[str]:
    kinds = sorted({(t.effect, t.plant) for t in trials if t.effect > 0})
    if kinds:
        yield "planted slowdowns: benches called slower than D, and what was measured of the slowdown"
    for effect, plant in kinds:
        suites = suites_of([t for t in trials if t.plant == plant], effect)
        got = math.expm1(float(np.median([row.mean() for suite in suites for row in suite])))
        rates = ", ".join(f"D = {d:.0%}: {called(suites, d, (SLOWER,))[0]}" for d in THRESHOLDS)
        exact = "  (nominally D)" if effect in THRESHOLDS else ""
        yield f"  {effect:.0%} {plant:<6} {rates}; median {got:+.1%}{exact}"


def _others(trials: Sequence[SuiteTrial]) -> Iterator[str]:
    with_others = [t for t in trials if t.effect == 0 and any(bench.others for bench in t.benches)]
    if not with_others:
        return
    yield f"the same benches and time by other tools' rules, identical code, {len(with_others)} suites at 5 %"
    for name in with_others[0].benches[0].others:
        hits = [sum(b.others[name].slower(0.05) for b in t.benches) for t in with_others]
        benches = Count(sum(hits), sum(len(t.benches) for t in with_others))
        yield f"  {name:<28} 'slower' {benches} benches, {Count(sum(h > 0 for h in hits), len(hits))} suites"
    ours = called(suites_of(with_others, 0.0), 0.05, (SLOWER,))
    yield f"  {'flashperf':<28} 'slower' {ours[0]} benches, {ours[1]} suites"


def simulated_lines(rates: Sequence[Rates], about: str) -> Iterator[str]:
    """The table of simulated scenarios."""
    yield f"simulated: {rates[0].trials} suites of 12 benches each; {about}"
    yield "    D   slowdown  pair sd  called slower  suites  certified  coverage"
    for one in rates:
        s = one.scenario
        yield (
            f"{s.threshold:>6.1%} {s.effect:>8.1%} {one.pair_sd:>8.2%} {one.slower:>14.1%} "
            f"{one.suites_slower:>7.1%} {one.certified:>10.1%} {one.coverage:>9.1%}"
        )


@dataclass(frozen=True)
class Aim:
    """One promise of the gate: what it says, and whether a simulated rate keeps it."""

    text: str
    kept: Callable[[Rates], bool]
    scenario: int


AIMS = (
    Aim("false 'slower' at most 1 % of benches, 5 % of suites", lambda r: r.slower <= 0.01, 0),
    Aim("the same with every bench slowed by exactly D", lambda r: r.suites_slower <= 0.05 + 0.015, 1),
    Aim("80 % power for 5 % at D = 2 %", lambda r: r.slower >= POWER, 2),
    Aim("80 % power for 2 % at D = 0.5 %, four times the budget", lambda r: r.slower >= POWER, 3),
    Aim("90 % of unchanged benches certified at D = 2 %", lambda r: r.certified >= 0.9, 0),
    Aim("95 % intervals cover 93 to 97 %", lambda r: 0.93 <= r.coverage <= 0.97, 0),
)


def aim_lines(rates: Sequence[Rates]) -> tuple[list[str], bool]:
    """Each aim with whether it is kept, and whether all are; ``rates`` are those of SCENARIOS, in order."""
    kept = [aim.kept(rates[aim.scenario]) for aim in AIMS]
    lines = [f"  {'kept  ' if ok else 'MISSED'}  {aim.text}" for aim, ok in zip(AIMS, kept, strict=True)]
    return ["aims, where the pair sd is at most 1 %:", *lines], all(kept)
