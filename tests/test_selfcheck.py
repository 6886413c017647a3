"""The self-check itself: what it plants, that it passes, and that it would fail if attribution were wrong."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest

from flashperf import noise as noise_module
from flashperf import planted, selfcheck, stats
from flashperf.attribution import shapley
from flashperf.noise import DATA, Noise, load_noise, record, record_segment
from flashperf.records import Interval


def test_planted_table_holds_the_causes_and_no_others():
    table = planted.planted_log_times()

    def time_of(*names):
        return math.exp(table[planted.mask_of(names)])

    assert table.shape == (256,)
    assert time_of() == 1.0
    assert time_of("burn", "touch") == pytest.approx(1.5)
    assert time_of("pair_a", "pair_b") == pytest.approx(1.5)
    assert time_of("triple_a", "triple_b") == pytest.approx(1.16)
    assert time_of("triple_a", "triple_b", "triple_c") == pytest.approx(1.64)
    assert time_of("saves") == pytest.approx(0.9)
    assert math.exp(table[-1]) == pytest.approx(2.54)


@pytest.mark.slow
def test_selfcheck_passes_as_the_command_runs_it():
    seen = []
    report = selfcheck.selfcheck_attribution(progress=lambda done, runs: seen.append((done, runs)))
    assert report.passed, "\n".join(report.lines())
    assert [row.name for row in report.rows] == [*(s.name for s in planted.SWITCHES), "total"]
    assert seen[0] == (1, 400)
    assert seen[-1] == (400, 400)
    assert report.interaction_found > 0.95
    assert report.interaction_coverage > 0.96


def test_selfcheck_in_short_recovers_what_was_planted():
    report = selfcheck.selfcheck_attribution(runs=20, seed=1)
    truth = np.exp(np.append(shapley(planted.planted_log_times()), planted.planted_log_times()[-1]))
    assert [row.true_ratio for row in report.rows] == pytest.approx(truth.tolist())
    assert [row.recovered_ratio for row in report.rows] == pytest.approx(truth.tolist(), rel=0.02)
    assert report == dataclasses.replace(
        selfcheck.selfcheck_attribution(runs=20, seed=1), seconds=report.seconds
    )
    for row in report.rows:
        points = 100 * math.log(row.recovered_ratio / row.true_ratio) / math.log(truth[-1])
        assert row.bias_points == pytest.approx(points)
    lines = report.lines()
    assert lines[0] == "20 runs of 9 workers x 2 cycles (1800 calls a run)"
    assert lines[-1].startswith(("passed", "FAILED"))
    assert sum(" pp" in line for line in lines) == 10


def test_selfcheck_fails_for_shares_that_are_biased_or_intervals_that_are_too_narrow():
    good = selfcheck.SelfcheckRow("burn", 1.2, 1.2, 0.1, 1.5, 0.95)
    report = selfcheck.SelfcheckReport((good,), 0.95, 1.0, 0.98, 400, 1800, "noise", 1.0)
    assert report.passed
    assert report.lines()[-1].startswith("passed")
    for change in ({"bias_points": 0.6}, {"bias_points": -0.6}, {"coverage": 0.91}, {"coverage": 0.99}):
        bad = dataclasses.replace(report, rows=(dataclasses.replace(good, **change),))
        assert not bad.passed
        assert "outside limits" in "\n".join(bad.lines())
        assert bad.lines()[-1].startswith("FAILED")
    assert not dataclasses.replace(report, aa_coverage=0.8).passed


def test_intervals_a_half_too_narrow_fail_the_selfcheck(monkeypatch):
    quantile = stats.t_quantile
    monkeypatch.setattr(stats, "t_quantile", lambda confidence, df: quantile(confidence, df) / 2)
    assert not selfcheck.selfcheck_attribution(runs=60).passed


def test_recorded_noise_is_small_finite_and_like_a_real_machine():
    noise = load_noise()
    assert DATA.stat().st_size < 100_000
    assert noise.log_series.size > 1000
    assert 0.0 < noise.sd < 1.0
    assert "calls of 27 ms" in noise.about
    assert noise.neighbour_sd == pytest.approx(noise.sd * math.sqrt(2 - 2 * noise.lag1), rel=0.05)
    replay = noise.replay(noise.log_series.size + 3, np.random.default_rng(0))
    assert replay[:3].tolist() == replay[-3:].tolist()
    start = int(np.flatnonzero(noise.log_series == replay[0])[0])
    assert replay[1] == noise.log_series[(start + 1) % noise.log_series.size]


def test_missing_or_broken_noise_says_how_to_record_it(tmp_path):
    with pytest.raises(ValueError, match="--record-noise 60"):
        load_noise(tmp_path / "none.npz")
    np.savez(tmp_path / "empty.npz", about=np.array("nothing"))
    with pytest.raises(ValueError, match="record it anew"):
        load_noise(tmp_path / "empty.npz")
    (tmp_path / "text.npz").write_text("not an archive")
    with pytest.raises(ValueError, match="--record-noise 60"):
        load_noise(tmp_path / "text.npz")
    with pytest.raises(ValueError, match="6 segments need at least"):
        record(2)


def test_recording_centres_every_segment_and_saves_float32(tmp_path, monkeypatch):
    class Finished:
        stdout = json.dumps([0.02, 0.03, 0.06])

    monkeypatch.setattr(noise_module.subprocess, "run", lambda *a, **k: Finished())
    noise = record(2, tmp_path / "new" / "noise.npz", segments=2)
    assert noise.log_series == pytest.approx(np.log([2 / 3, 1, 2, 2 / 3, 1, 2]), abs=1e-6)
    with np.load(tmp_path / "new" / "noise.npz") as data:
        assert data["segment_0"].dtype == np.float32


def test_recording_really_times_calls():
    times = record_segment(0.0, seed=0)
    assert len(times) == 3
    assert min(times) > 0


def test_burnt_pipeline_burns_the_planted_amounts(monkeypatch):
    pipeline = planted.DummyPipeline()
    spent = []
    monkeypatch.setattr(pipeline, "_spin", lambda loops: spent.append(("spin", loops)))
    monkeypatch.setattr(pipeline, "_touch", lambda passes: spent.append(("touch", passes)))
    pipeline.loops_per_s, pipeline.passes_per_s = 1e6, 1e5
    for names, spin, touch in [
        ((), 500, 0),
        (("burn",), 650, 0),
        (("touch",), 500, 10),
        (("pair_a", "pair_b"), 750, 0),
        (("triple_a", "triple_b", "triple_c", "saves"), 770, 0),
    ]:
        spent.clear()
        assert pipeline.run(planted.mask_of(names)) > 0
        assert spent == [("spin", spin), ("touch", touch)]


def test_a_disturbed_group_is_repeated_on_evidence_and_the_least_disturbed_counts(monkeypatch):
    class Usage:
        def __init__(self, switches):
            self.ru_nivcsw = switches

    class Pipeline:
        """Every call takes longer than the one before, so that tries can be told apart."""

        def __init__(self):
            self.calls = 0

        def run(self, mask):
            self.calls += 1
            return float(self.calls)

    group = planted.Group("pair", -1, (1, 2))
    monkeypatch.setattr(planted.time, "sleep", lambda seconds: None)
    for disturbed, kept in [((0,), 0), ((2, 1, 0), 2), ((3, 1, 1, 2, 2, 2), 1)]:
        reading = iter(np.array([[0, count] for count in disturbed]).ravel().tolist())
        monkeypatch.setattr(planted.resource, "getrusage", lambda who, r=reading: Usage(next(r)))
        seconds, repeats = planted._undisturbed(Pipeline(), group)
        assert seconds == [3.0 * kept + 2, 3.0 * kept + 3]
        assert repeats == len(disturbed) - 1


def test_real_report_judges_directions_only():
    def row(planted_ratio, low, value, high):
        return planted.RealRow("x", planted_ratio, Interval(value, low, high))

    assert row(1.2, 1.01, 3.0, 9.0).direction == "right"
    assert row(1.2, 0.9, 0.95, 1.1).direction == "unclear"
    assert row(1.2, 0.8, 0.9, 0.95).direction == "wrong"
    assert row(0.9, 0.8, 0.9, 0.95).direction == "right"
    right, unclear, wrong = row(1.2, 1.1, 1.2, 1.3), row(1.2, 0.9, 1.2, 1.3), row(0.9, 1.1, 1.2, 1.3)
    assert planted.RealReport((right, unclear), None).passed
    assert not planted.RealReport((unclear,), None).passed
    assert not planted.RealReport((right, wrong), None).passed


@pytest.mark.slow
def test_causes_really_burnt_are_found_on_the_right_side():
    done = []
    report = planted.selfcheck_real(workers=6, cycles=1, progress=lambda n, of: done.append((n, of)))
    assert report.passed, "\n".join(report.lines())
    assert done[-1] == (6, 6)
    assert report.attribution.workers == 6
    assert report.lines()[-1].startswith("passed (directions only)")


def test_command_line_records_or_checks(monkeypatch, capsys):
    monkeypatch.setattr(
        selfcheck, "record", lambda seconds: Noise(np.array([0.0, 0.1, 0.0, 0.2]), f"{seconds} s")
    )
    assert selfcheck.main(["--record-noise", "7"]) == 0
    assert "7.0 s; sd" in capsys.readouterr().out
    code = selfcheck.main(["--runs", "3"])
    out = capsys.readouterr().out
    assert "3 runs of 9 workers" in out
    assert code == (0 if out.splitlines()[-1].startswith("passed") else 1)
