"""Two saved runs set against each other, bench by bench; each gets a verdict or the reason why not."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from flashperf.gate.outcome import FAILED, MISSING, NEW, NOT_COMPARABLE, GateReport, Outcome
from flashperf.gate.rule import CANT_TELL, Judged, judge, moderated
from flashperf.gate.runs import SavedBench, SavedRun, key_difference
from flashperf.gate.saved import RunSpread, SavedComparison, compare_saved


@dataclass(frozen=True)
class GateOptions:
    """How a comparison is judged. ``threshold_of``: D of a bench by name, where it isn't ``threshold``."""

    threshold: float
    threshold_of: Mapping[str, float] = field(default_factory=dict)
    strict: bool = False
    moderated: bool = False
    run_sd: float | None = None

    def of(self, name: str) -> float:
        return self.threshold_of.get(name, self.threshold)


def compare_runs(
    before: SavedRun,
    now: SavedRun,
    options: GateOptions,
    spread_of: Callable[[SavedBench], RunSpread | None] = lambda bench: None,
    not_selected: Sequence[str] = (),
) -> GateReport:
    """Judge every bench of two saved runs.

    ``spread_of`` gives what stored runs say of a bench; ``not_selected``: benches that the user left out.
    """
    outcomes: dict[str, Outcome] = {}
    compared: dict[str, SavedComparison] = {}
    for name in dict.fromkeys([*now.benches, *before.benches]):
        if name in not_selected:
            continue
        old, new = before.benches.get(name), now.benches.get(name)
        outcome = _outside(name, old, new, before, now)
        if outcome is not None:
            outcomes[name] = outcome
        elif old is not None and new is not None:
            spread = spread_of(new)
            times = old.times(), new.times()
            compared[name] = compare_saved(name, *times, options.of(name), spread, options.run_sd)
    outcomes.update(_judged(compared, before, now, options))
    order = [name for name in dict.fromkeys([*now.benches, *before.benches]) if name in outcomes]
    notes = [*before.notes, *now.notes, *_notes(compared, len(not_selected))]
    return GateReport(before.label, now.label, tuple(outcomes[name] for name in order), tuple(notes))


def _outside(
    name: str, old: SavedBench | None, new: SavedBench | None, before: SavedRun, now: SavedRun
) -> Outcome | None:
    """Missing, new, failed or not comparable; None if it can be judged."""
    if new is None:
        return Outcome(name, MISSING, detail="in the baseline, did not run" + _renamed(name, before, now))
    if new.failed:
        return Outcome(name, FAILED, detail=new.problem or "it raised an error")
    if old is None:
        return Outcome(name, NEW, detail="has no baseline" + _renamed(name, now, before))
    if old.failed:
        return Outcome(name, NEW, detail="it failed in the baseline")
    for side, bench in (("before", old), ("now", new)):
        if bench.problem and bench.summary_s is None:
            return Outcome(name, NOT_COMPARABLE, detail=f"{side}: {bench.problem}")
    difference = key_difference(old.key, new.key)
    if difference:
        return Outcome(name, NOT_COMPARABLE, detail=difference)
    problem = next(filter(None, (old.problem, new.problem)), "")
    return Outcome(name, CANT_TELL, detail=problem, times_s=_both(old, new)) if problem else None


def _both(old: SavedBench, new: SavedBench) -> tuple[float, float] | None:
    """Median seconds before and now, if both are known."""
    before_s, now_s = old.median_s, new.median_s
    return (before_s, now_s) if before_s is not None and now_s is not None else None


def _renamed(name: str, here: SavedRun, there: SavedRun) -> str:
    candidates = [other for other in there.benches if other not in here.benches]
    near = difflib.get_close_matches(name, candidates, n=1, cutoff=0.8)
    return f"; renamed? {near[0]} is only on the other side" if near else ""


def _judged(
    compared: Mapping[str, SavedComparison], before: SavedRun, now: SavedRun, options: GateOptions
) -> dict[str, Outcome]:
    judged = [comparison.judged for comparison in compared.values()]
    if options.moderated:
        better = moderated([one.estimate for one in judged])
        judged = [
            Judged(j.name, e, j.threshold, j.processes, j.doubt) for j, e in zip(judged, better, strict=True)
        ]
    outcomes = {}
    for verdict, comparison in zip(judge(judged, options.strict), compared.values(), strict=True):
        times_s = _both(before.benches[verdict.name], now.benches[verdict.name])
        outcomes[verdict.name] = Outcome(verdict.name, verdict.verdict, verdict, _detail(comparison), times_s)
    return outcomes


def _detail(comparison: SavedComparison) -> str:
    if comparison.used == "ratio" and comparison.drift is not None:
        return f"canary {comparison.drift - 1:+.1%}"
    return "raw times"


def _notes(compared: Mapping[str, SavedComparison], left_out: int) -> list[str]:
    notes = []
    drifts = [c.drift for c in compared.values() if c.drift is not None]
    if drifts:
        low, high = min(drifts) - 1, max(drifts) - 1
        notes.append(
            f"the machine itself, by its canaries: {low:+.1%} to {high:+.1%}; taken out of ratios marked canary"
        )
    for source in dict.fromkeys(c.run_sd_from for c in compared.values()):
        sds = [c.run_sd for c in compared.values() if c.run_sd_from == source]
        between = f"{min(sds):.2%} to {max(sds):.2%}" if max(sds) > min(sds) else f"{sds[0]:.2%}"
        notes.append(f"spread between runs {between} ({source})")
    if left_out:
        notes.append(f"{left_out} benches of the baseline were not selected")
    return notes
