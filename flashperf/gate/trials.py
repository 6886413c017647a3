"""Trials of the gate on the machine in use: suites of identical code, and suites with a slowdown planted.

Every suite starts fresh process pairs and is recorded with its log ratios, so that any threshold and rule can be
judged on reading (``selfcheck gate --from``).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flashperf import environment
from flashperf.errors import UserError
from flashperf.gate.pairs import BenchFailed, Pairs, PairTimes, Tree
from flashperf.gate.rivals import Said, all_rules
from flashperf.registry import cases, mechanism, why_not
from flashperf.store import RecordWriter, from_json, read_records
from flashperf.workers import WorkerError

PAIRS, BLOCKS = 8, 3  # fewer blocks than a comparison has, and longer samples: many suites in little time
SUITE = ("tiling", "fusion", "launch", "precision", "attention", "quantization")


@dataclass(frozen=True)
class BenchTrial:
    """One bench of one suite: a log ratio per pair, and what other tools' rules said, where they were asked."""

    name: str
    log_ratios: tuple[float, ...]
    median_s: float
    disturbed: int
    others: Mapping[str, Said] = field(default_factory=dict)


@dataclass(frozen=True)
class SuiteTrial:
    """One suite: what was planted (a fraction, 0 for identical code) and its benches."""

    effect: float
    plant: str
    budget_s: float
    pairs: int
    seed: int
    benches: tuple[BenchTrial, ...]
    load: float | None = None


def suite_cases(count: int = 12) -> list[str]:
    """Ids of cases of several kinds that run here: standard and flash of each mechanism of SUITE, then more."""
    found: list[str] = []
    for name in SUITE:
        one = mechanism(name)
        here = [case for case in cases(one, "bench", ["cpu"]) if not why_not(one, case)]
        for variant in (one.standard, one.flash):
            found += [case.id for case in here if case.variant == variant][:1]
    return list(dict.fromkeys(found))[:count]


def run_suite(
    names: Sequence[str],
    effect: float,
    plant: str,
    budget_s: float,
    seed: int,
    pairs: int = PAIRS,
    rivals: bool = False,
    tell: Callable[[str], None] = lambda text: None,
) -> SuiteTrial:
    """One suite on fresh processes: ``budget_s`` seconds for each bench, and as much again for the other tools.

    All pairs measure every bench: what an earlier look would have said is judged on reading. Raises UserError if
    a bench fails.
    """
    tree = Tree("this tree", {"cases": list(names)})
    benches = []
    with Pairs((tree, tree), seed, (plant, effect) if effect else None) as running:
        running.start(pairs)
        for name in names:
            tell(name)
            try:
                times = running.measure(name, range(pairs), budget_s / pairs, BLOCKS)
                others = _others(running, times, budget_s, pairs) if rivals else {}
            except BenchFailed as error:
                raise UserError(f"{name}: {error}") from error
            flat = sorted(s for one in times.before_s for s in one)
            benches.append(BenchTrial(name, times.log_ratios, flat[len(flat) // 2], times.disturbed, others))
    load = environment.load_1min()
    return SuiteTrial(effect, plant if effect else "", budget_s, pairs, seed, tuple(benches), load)


def _others(running: Pairs, times: PairTimes, budget_s: float, pairs: int) -> dict[str, Said]:
    """Short windows of every process, then a long one of the first, each for the time that the blocks had."""
    calls = times.plan.calls
    short = running.windows(range(pairs), budget_s / (2 * pairs), calls)
    return all_rules(short, running.windows(range(1), budget_s / 2, calls))


def record_trials(
    path: Path,
    plan: Sequence[Mapping[str, Any]],
    names: Sequence[str],
    tell: Callable[[int, int, str], None] = lambda done, total, text: None,
) -> None:
    """Run the suites of a plan, each a mapping of arguments of ``run_suite``, and record them as they end."""
    with RecordWriter(path) as record:
        record.write("environment", environment=environment.capture())
        for number, arguments in enumerate(plan):
            try:
                trial = run_suite(
                    names, **arguments, seed=number, tell=functools.partial(tell, number, len(plan))
                )
            except (UserError, WorkerError) as error:
                record.write("failed", seed=number, reason=str(error))
                continue
            record.write("suite", **{key: getattr(trial, key) for key in trial.__dataclass_fields__})


def selfcheck_plan(suites: int, budget_s: float) -> list[dict[str, Any]]:
    """Arguments of ``run_suite`` for a short check: identical code beside other tools' rules, then slowed suites."""
    same = {"effect": 0.0, "plant": "", "budget_s": budget_s, "rivals": True}
    effects = [(0.05, "delay"), (0.10, "touch"), (0.02, "delay"), (0.01, "touch")]
    slowed = [
        {"effect": effects[n % 4][0], "plant": effects[n % 4][1], "budget_s": budget_s}
        for n in range((suites + 1) // 2)
    ]
    return [same] * suites + slowed


def read_trials(path: Path) -> list[SuiteTrial]:
    """The suites of a record. Raises RecordError if it can't be read, UserError if it holds none."""
    trials = [from_json(SuiteTrial, line) for line in read_records(path).of("suite")]
    if not trials:
        raise UserError(f"{path} holds no suites of the gate")
    return trials
