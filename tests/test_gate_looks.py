"""From process pairs to a report: looks, failures, benches of one side only; on scripted pairs, no process."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from flashperf.gate.looks import PairResults, judge_pairs, measure_pairs, pair_report
from flashperf.gate.outcome import FAILED, MISSING, NEW
from flashperf.gate.pairs import BenchFailed, PairTimes, SamplePlan
from flashperf.gate.rule import EQUIVALENT, SLOWER
from flashperf.gate.versus import GateOptions


class ScriptedPairs:
    """Pairs whose log ratios are given per bench; a bench called ``broken`` raises on its side."""

    start_s = 1.0

    def __init__(self, ratios: dict[str, Sequence[float]], broken: dict[str, int] | None = None) -> None:
        self.ratios, self.broken = ratios, broken or {}
        self.started = self.healed = 0
        self.asked: list[tuple[str, tuple[int, ...], float]] = []

    def __len__(self) -> int:
        return self.started

    def start(self, count: int) -> None:
        self.started += count

    def heal(self) -> None:
        self.healed += 1

    def measure(self, name: str, pairs: Sequence[int], pair_budget_s: float) -> PairTimes:
        self.asked.append((name, tuple(pairs), pair_budget_s))
        if name in self.broken:
            raise BenchFailed(self.broken[name], "ValueError: no")
        logs = tuple(self.ratios[name][number] for number in pairs)
        times = tuple((1e-3,) for _ in logs)
        return PairTimes(logs, times, times, SamplePlan(1, 1, 6))


STEADY = np.tile([-0.001, 0.001], 8).tolist()
WIDE = np.tile([0.0, 0.1], 8).tolist()


def test_what_is_open_after_eight_pairs_gets_two_more_and_the_rest_does_not() -> None:
    pairs: Any = ScriptedPairs({"a": STEADY, "b": WIDE})
    told: list[str] = []
    results = measure_pairs(pairs, ["a", "b"], GateOptions(0.05), 12, 1.2, lambda name, *_: told.append(name))
    assert [(name, numbers) for name, numbers, _ in pairs.asked] == [
        ("a", tuple(range(8))),
        ("b", tuple(range(8))),
        ("b", (8, 9)),
        ("b", (10, 11)),
    ]
    assert [budget for *_, budget in pairs.asked] == pytest.approx([0.1] * 4)
    assert pairs.started == 12
    assert told == ["a", "b", "b", "b"]
    verdicts = judge_pairs(results, GateOptions(0.05))
    assert (verdicts["a"].processes, verdicts["b"].processes) == (8, 12)
    assert results.medians_s("a") == (1e-3, 1e-3)


def test_nothing_more_is_started_once_all_is_settled() -> None:
    pairs: Any = ScriptedPairs({"a": STEADY})
    measure_pairs(pairs, ["a"], GateOptions(0.05))
    assert pairs.started == 8


def report_of(pairs: Any, skipped: Any = ({}, {}), ready: Any = None) -> Any:
    names = list(pairs.ratios)
    results = measure_pairs(pairs, names, GateOptions(0.05), 8)
    return pair_report(pairs, ("old", "new"), results, GateOptions(0.05), skipped, ready or (names, names))


def test_a_bench_that_fails_leaves_the_others_judged() -> None:
    slow = (np.array(STEADY) + math.log(1.2)).tolist()
    pairs: Any = ScriptedPairs(
        {"now": STEADY, "then": STEADY, "good": STEADY, "slow": slow}, {"now": 1, "then": 0}
    )
    report = report_of(pairs)
    words = {outcome.name: outcome.word for outcome in report.outcomes}
    assert words == {"now": FAILED, "then": NEW, "good": EQUIVALENT, "slow": SLOWER}
    assert pairs.healed == 2
    assert next(o for o in report.outcomes if o.name == "now").detail == "now: ValueError: no"


def test_benches_of_one_side_are_named_with_their_reason() -> None:
    pairs: Any = ScriptedPairs({"both": STEADY})
    skipped = (
        {"x::gpu": "no GPU", "x::gone_gpu": "no GPU"},
        {"x::gpu": "no GPU", "bench_b.py": "ImportError: no"},
    )
    report = report_of(pairs, skipped, (["both", "gone"], ["both", "fresh"]))
    got = {outcome.name: (outcome.word, outcome.detail) for outcome in report.outcomes}
    assert got["gone"] == (MISSING, "is not there now")
    assert got["fresh"] == (NEW, "was not there before")
    assert got["bench_b.py"] == (FAILED, "now: ImportError: no")
    assert "x::gpu" not in got
    assert any("1 benches can't run here on either side: no GPU" in note for note in report.notes)


def test_moderated_and_strict_are_passed_on() -> None:
    rng = np.random.default_rng(0)
    results = PairResults()
    for n in range(8):
        logs = tuple(rng.normal(0, 0.01, 8))
        results.times[str(n)] = [PairTimes(logs, ((1.0,),), ((1.0,),), SamplePlan(1, 1, 1))]
    plain = judge_pairs(results, GateOptions(0.05))
    shrunk = judge_pairs(results, GateOptions(0.05, moderated=True))
    strict = judge_pairs(results, GateOptions(0.05, strict=True))
    widths = [[v.ratio.high - v.ratio.low for v in found.values()] for found in (plain, shrunk)]
    assert np.ptp(widths[1]) < np.ptp(widths[0])
    assert all(strict[n].p_no_slower >= plain[n].p_no_slower for n in plain)
