"""Error rates, power and coverage of the gate on replayed noise; what recorded trials say; other tools' rules."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from flashperf.errors import UserError
from flashperf.gate import rivals
from flashperf.gate.planted import planted
from flashperf.gate.power import SCENARIOS, Rates, Scenario, pair_logs, simulate, suite_verdicts
from flashperf.gate.rivals import Said
from flashperf.gate.rule import SLOWER
from flashperf.gate.trial_report import (
    Count,
    aim_lines,
    called,
    coverage,
    smallest_found,
    suites_of,
    trial_lines,
)
from flashperf.gate.trials import BenchTrial, SuiteTrial, read_trials
from flashperf.noise import Noise, load_noise
from flashperf.store import RecordWriter

NOISE = load_noise()


@pytest.mark.slow
def test_all_aims_are_kept_over_a_thousand_suites() -> None:
    rates = [simulate(scenario, NOISE, 1000) for scenario in SCENARIOS]
    lines, kept = aim_lines(rates)
    assert kept, "\n".join(lines)


def test_identical_code_is_hardly_ever_called_slower_and_mostly_certified() -> None:
    same = simulate(Scenario(0.02, 0.0), NOISE, 80, seed=3)
    assert same.suites_slower <= 0.05
    assert same.certified > 0.95
    assert 0.93 <= same.coverage <= 0.975  # 960 intervals
    assert same.pair_sd == pytest.approx(0.01)


def test_exactly_d_is_rarely_called_and_more_than_d_nearly_always() -> None:
    at = simulate(Scenario(0.02, 0.02), NOISE, 80, seed=3)
    assert at.suites_slower <= 0.12  # 5 % and 3 standard errors of 80
    assert simulate(Scenario(0.02, 0.05), NOISE, 20, seed=3).slower > 0.9
    assert simulate(Scenario(0.005, 0.02, 0.005, 24), NOISE, 20, seed=3).slower > 0.8


def test_a_block_is_free_of_a_level_and_of_a_steady_drift() -> None:
    series = 0.3 + 1e-4 * np.arange(100_000)
    flat = pair_logs(Noise(series, ""), (3, 4), 6, np.random.default_rng(0))
    assert flat.shape == (3, 4)
    assert np.abs(flat[np.abs(flat) < 0.1]).max() < 1e-12
    assert pair_logs(NOISE, (2, 5), 6, np.random.default_rng(0)).std() > 0


def test_open_benches_get_more_pairs_and_settled_ones_keep_theirs() -> None:
    settled, open_one = np.tile([-0.001, 0.001], 5), np.tile([0.0, 0.04], 5)
    verdicts = suite_verdicts(np.array([settled, open_one]), 0.02)
    assert [v.processes for v in verdicts] == [8, 10]


def test_missed_aims_are_said() -> None:
    rates = [
        Rates(s, 100, slower=0.5, suites_slower=0.5, certified=0.5, coverage=0.8, pair_sd=0.01)
        for s in SCENARIOS
    ]
    lines, kept = aim_lines(rates)
    assert not kept
    assert sum("MISSED" in line for line in lines) == 6


def trial(effect: float, shift: float, seed: int, plant: str = "") -> SuiteTrial:
    rng = np.random.default_rng(seed)
    others = {name: Said(1.2, True) for name in rivals.RULES} if not effect else {}
    benches = tuple(
        BenchTrial(f"m/{n}", tuple(rng.normal(shift, 0.005, 8)), 1e-4, 0, others) for n in range(4)
    )
    return SuiteTrial(effect, plant, 0.5, 8, seed, benches, 1.5)


def test_a_record_is_read_back_and_reported(tmp_path: Path) -> None:
    trials = [trial(0.0, 0.0, n) for n in range(5)] + [trial(0.05, math.log(1.05), 9, "delay")]
    with RecordWriter(tmp_path / "t.jsonl") as record:
        for one in trials:
            record.write("suite", **{name: getattr(one, name) for name in one.__dataclass_fields__})
    assert read_trials(tmp_path / "t.jsonl") == trials
    lines = list(trial_lines(trials))
    assert lines[0].startswith("measured: 6 suites of 4 benches in 8 process pairs, 0.5 s a bench, load 1.5")
    text = "\n".join(lines)
    assert "D = 5%: false 'slower' 0 of 20 (0.0%) benches, 0 of 5 (0.0%) suites" in text
    assert "5% delay  D = 2%: 4 of 4 (100.0%)" in text
    assert "pytest-benchmark, mean       'slower' 20 of 20 (100.0%) benches, 5 of 5 (100.0%) suites" in text
    with RecordWriter(tmp_path / "none.jsonl"):
        pass
    with pytest.raises(UserError, match="holds no suites"):
        read_trials(tmp_path / "none.jsonl")


def test_counts_and_bounds() -> None:
    suites = suites_of([trial(0.0, 0.0, n) for n in range(40)], 0.0)
    benches, whole = called(suites, 0.02, (SLOWER,))
    assert (benches.n, whole.n) == (160, 40)
    assert Count(0, 60).upper == pytest.approx(1 - 0.05 ** (1 / 60))
    assert 0.9 < coverage(suites).rate <= 0.99
    assert coverage(suites, 1.0).k == 0
    assert smallest_found(0.01, 10, 0.02, 12) == pytest.approx(0.0338, abs=0.0001)


def test_smallest_found_is_found_with_eighty_percent() -> None:
    effect = smallest_found(0.01, 10, 0.02, 1)
    rng = np.random.default_rng(1)
    found = [
        suite_verdicts(rng.normal(math.log1p(effect), 0.01, (1, 10)), 0.02)[0].verdict == SLOWER
        for _ in range(400)
    ]
    assert 0.74 < np.mean(found) < 0.88


@pytest.mark.parametrize("name", rivals.RULES)
def test_other_tools_rules_see_what_is_large(name: str) -> None:
    rng = np.random.default_rng(0)
    before = [np.abs(rng.normal(1.0, 0.01, 100)).tolist() for _ in range(3)]
    now = [(1.2 * np.array(one)).tolist() for one in before]
    rule = rivals.RULES[name][0]
    assert rule(before, now).slower(0.05)
    assert not rule(before, before).slower(0.05)
    assert rule(before, now).ratio == pytest.approx(1.2, rel=0.02)


def test_precision_mode_stops_early_on_steady_rounds_only() -> None:
    rng = np.random.default_rng(0)
    steady = rng.normal(1.0, 0.01, 500).tolist()
    assert len(rivals.until_precise(steady)) < 20
    wild = rng.normal(1.0, 0.5, 500).tolist()
    assert len(rivals.until_precise(wild)) == 500


@pytest.mark.parametrize("kind", ["delay", "touch"])
def test_planted_work_is_there_and_calls_what_it_slows(kind: str) -> None:
    calls: list[int] = []
    slowed = planted(kind, 1e-4)(lambda: calls.append(1))
    slowed()
    assert calls == [1]
    assert planted(kind, 0.0)(lambda: calls.append(1))() is None
    with pytest.raises(UserError, match="did you mean delay"):
        planted("dely", 1.0)
