"""Judging process pairs at a few looks: first at 8 pairs, then after each two more, for what is still open."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from flashperf.gate.outcome import FAILED, MISSING, NEW, GateReport, Outcome
from flashperf.gate.pairs import SIDES, BenchFailed, Pairs, PairTimes
from flashperf.gate.rule import CANT_TELL, Judged, Verdict, judge, moderated
from flashperf.gate.versus import GateOptions
from flashperf.stats import mean_of

FIRST_LOOK, STEP = 8, 2
DEFAULT_PAIRS = 10
BUDGET_S = 2.5  # a bench, at all pairs
Tell = Callable[[str, int, int], None]


@dataclass
class PairResults:
    """What has been measured: per bench its looks, one after another; and what failed, by side."""

    times: dict[str, list[PairTimes]] = field(default_factory=dict)
    failed: dict[str, tuple[int, str]] = field(default_factory=dict)

    def log_ratios(self, name: str) -> list[float]:
        """One per pair."""
        return [ratio for look in self.times[name] for ratio in look.log_ratios]

    def medians_s(self, name: str) -> tuple[float, float]:
        """Median seconds per call before and now."""
        looks = self.times[name]
        before, now = (
            float(np.median([s for look in looks for one in getattr(look, side) for s in one]))
            for side in ("before_s", "now_s")
        )
        return before, now


def judge_pairs(results: PairResults, options: GateOptions) -> dict[str, Verdict]:
    """The verdict of each bench that was measured."""
    names = list(results.times)
    estimates = [mean_of(results.log_ratios(name)) for name in names]
    if options.moderated:
        estimates = moderated(estimates)
    judged = [
        Judged(name, estimate, options.of(name), len(results.log_ratios(name)))
        for name, estimate in zip(names, estimates, strict=True)
    ]
    return {verdict.name: verdict for verdict in judge(judged, options.strict)}


def measure_pairs(
    pairs: Pairs,
    names: Sequence[str],
    options: GateOptions,
    most: int = DEFAULT_PAIRS,
    budget_s: float = BUDGET_S,
    tell: Tell = lambda name, done, total: None,
) -> PairResults:
    """Measure the benches; those that are open after 8 pairs get two more at a time, up to ``most``.

    ``budget_s`` seconds a bench at ``most`` pairs. ``tell`` hears of each bench before it is measured.
    """
    results = PairResults()
    done, wanted = 0, list(names)
    while wanted and done < most:
        count = min(FIRST_LOOK if done == 0 else STEP, most - done)
        if len(pairs) < done + count:
            pairs.start(done + count - len(pairs))
        for place, name in enumerate(wanted):
            tell(name, place, len(wanted))
            _measure_one(pairs, results, name, range(done, done + count), budget_s / most)
        done += count
        verdicts = judge_pairs(results, options)
        wanted = [name for name in wanted if name in verdicts and verdicts[name].verdict == CANT_TELL]
    return results


def _measure_one(
    pairs: Pairs, results: PairResults, name: str, numbers: Sequence[int], pair_budget_s: float
) -> None:
    try:
        results.times.setdefault(name, []).append(pairs.measure(name, numbers, pair_budget_s))
    except BenchFailed as error:
        del results.times[name]
        results.failed[name] = (error.side, str(error))
        pairs.heal()


def pair_report(
    pairs: Pairs,
    labels: tuple[str, str],
    results: PairResults,
    options: GateOptions,
    sides: Sequence[Mapping[str, str]],
    ready: Sequence[Sequence[str]],
) -> GateReport:
    """Outcomes of all benches of both sides. sides: what each could not run, with the reason; ready: what it could."""
    outcomes: dict[str, Outcome] = {}
    for name, verdict in judge_pairs(results, options).items():
        outcomes[name] = Outcome(name, verdict.verdict, verdict, times_s=results.medians_s(name))
    for name, (side, why) in results.failed.items():
        word = FAILED if side else NEW
        outcomes[name] = Outcome(name, word, detail=f"{SIDES[side]}: {why}")
    for name in dict.fromkeys([*ready[1], *ready[0]]):
        if name in outcomes:
            continue
        here, reason = (MISSING, sides[1].get(name)) if name in ready[0] else (NEW, sides[0].get(name))
        where = "is not there now" if here == MISSING else "was not there before"
        outcomes[name] = Outcome(name, here, detail=reason or where)
    for name, why in sides[1].items():
        if "::" not in name and name not in sides[0]:  # a bench file that could be read before
            outcomes[name] = Outcome(name, FAILED, detail=f"now: {why}")
    both = [name for name in sides[0] if name in sides[1]]
    notes = [f"{len(results.times)} benches in process pairs, start-up {pairs.start_s:.0f} s"]
    if both:
        example = sides[1][both[0]]
        notes.append(f"{len(both)} benches can't run here on either side: {example}")
    return GateReport(labels[0], labels[1], tuple(outcomes.values()), tuple(notes))
