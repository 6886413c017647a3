"""Saved runs: Welch with the component between runs, canaries, drift, history; every kind of bad file."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flashperf.errors import UserError
from flashperf.gate.outcome import FAILED, MISSING, NEW, NOT_COMPARABLE, parse_fail_on, parse_percent
from flashperf.gate.readers import read_run, read_runs
from flashperf.gate.rule import CANT_TELL, EQUIVALENT, NO_SLOWER, SLOWER
from flashperf.gate.runs import SavedBench, SavedRun, bad_samples, collect
from flashperf.gate.saved import ProcessTimes, compare_saved, process_log, run_spread
from flashperf.gate.versus import GateOptions, compare_runs

KEY = {"device": "CPU one", "python": "3.12"}


def times(
    level: float, canary: float = 0.0, seed: int = 0, processes: int = 8, sd: float = 0.003
) -> ProcessTimes:
    rng = np.random.default_rng(seed)
    return ProcessTimes(
        tuple(level + canary + rng.normal(0, sd, processes)),
        tuple(canary + rng.normal(0, sd, processes)),
        "compute",
    )


def test_estimate_is_welch_on_ratios_with_the_component_between_runs() -> None:
    before, now = times(0.0), times(0.05, seed=1)
    got = compare_saved("a", before, now, 0.05)
    a, b = np.array(before.ratios), np.array(now.ratios)
    assert got.judged.estimate.value == pytest.approx(b.mean() - a.mean())
    variance = a.var(ddof=1) / 8 + b.var(ddof=1) / 8 + 2 * 0.01**2
    assert got.judged.estimate.standard_error == pytest.approx(math.sqrt(variance))
    assert (got.used, got.run_sd_from) == ("ratio", "assumed")
    assert compare_saved("a", before, now, 0.05, run_sd=0.5).judged.estimate.standard_error > 0.5


def test_a_drift_that_raw_times_contradict_is_said_and_settles_nothing() -> None:
    before, drifted = times(0.0), times(0.0, canary=0.2, seed=1)
    got = compare_saved("a", before, drifted, 0.05)
    assert got.drift == pytest.approx(math.exp(0.2), rel=0.01)
    assert "machine moved by +22" in got.judged.doubt
    small = compare_saved("a", before, times(0.0, canary=0.03, seed=1), 0.05)
    assert small.judged.doubt == ""
    assert abs(small.judged.estimate.value) < 0.01


def test_history_gives_the_spread_and_decides_whether_the_canary_helps() -> None:
    rng = np.random.default_rng(3)
    drift = rng.normal(0, 0.1, 12)
    with_canary = [times(0.0, canary=d, seed=n) for n, d in enumerate(drift)]
    spread = run_spread(with_canary)
    assert spread is not None
    assert spread.canary_helps
    assert spread.ratio_sd < 0.01 < spread.raw_sd
    unrelated = [
        ProcessTimes(
            times(0.0, seed=n).logs, tuple(c + d for c in times(0.0, seed=n + 50).canary_logs), "compute"
        )
        for n, d in enumerate(drift)
    ]
    other = run_spread(unrelated)
    assert other is not None
    assert not other.canary_helps
    assert compare_saved("a", times(0.0), times(0.0, seed=1), 0.05, other).used == "raw"
    assert run_spread(with_canary[:7]) is None
    stepped = [times(0.3 if n > 5 else 0.0, seed=n) for n in range(12)]
    assert run_spread(stepped).ratio_sd < 0.08  # type: ignore[union-attr] # the plain sd would be 0.15


def test_process_log_is_the_lower_quartile() -> None:
    assert process_log([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx(math.log(2.0))


def run_of(*benches: SavedBench, label: str = "run") -> SavedRun:
    return collect(label, "test", benches)


def one(name: str, level: float = 1e-3, seed: int = 0, processes: int = 8, **more: Any) -> SavedBench:
    rng = np.random.default_rng(seed)
    samples = level * np.exp(rng.normal(0, 0.002, (processes, 20)))
    canary = np.exp(rng.normal(-7, 0.002, (processes, 16)))
    fields = {"canary_s": tuple(map(tuple, canary)), "canary": "compute/l1", "key": KEY} | more
    return SavedBench(name, tuple(map(tuple, samples)), **fields)


def test_every_bench_of_either_side_is_named_once_with_its_word() -> None:
    before = run_of(
        one("same"),
        one("slow"),
        one("gone"),
        one("elsewhere"),
        one("raises"),
        one("few"),
        one("renamed_long_name"),
    )
    now = run_of(
        one("same", seed=1),
        one("slow", 1.2e-3, seed=2),
        one("elsewhere", key={**KEY, "device": "CPU two"}),
        SavedBench("raises", failed=True, problem="ValueError: no"),
        one("few", processes=3),
        one("renamed_long_names"),
    )
    report = compare_runs(before, now, GateOptions(0.05))
    got = {outcome.name: outcome for outcome in report.outcomes}
    words = {name: outcome.word for name, outcome in got.items()}
    assert words == {
        "same": EQUIVALENT,
        "slow": SLOWER,
        "gone": MISSING,
        "elsewhere": NOT_COMPARABLE,
        "raises": FAILED,
        "few": CANT_TELL,
        "renamed_long_name": MISSING,
        "renamed_long_names": NEW,
    }
    assert got["elsewhere"].detail == "device CPU one before, CPU two now"
    assert got["raises"].detail == "ValueError: no"
    assert "renamed? renamed_long_names" in got["renamed_long_name"].detail
    assert report.exit_code(parse_fail_on("slower,missing")) == 10
    assert report.exit_code(parse_fail_on("missing")) == 12
    assert report.exit_code(parse_fail_on("cant-tell")) == 11
    assert report.exit_code(parse_fail_on("not-comparable")) == 13
    assert report.exit_code(parse_fail_on("failed,slower")) == 14
    assert report.exit_code(parse_fail_on("new")) == 15
    assert report.exit_code(parse_fail_on("none")) == 0
    assert not report.passed


def test_a_suite_passes_only_if_all_are_shown() -> None:
    assert compare_runs(run_of(one("a")), run_of(one("a", seed=1)), GateOptions(0.05)).passed
    assert not compare_runs(run_of(), run_of(), GateOptions(0.05)).passed


def test_thresholds_of_single_benches() -> None:
    before, now = run_of(one("a"), one("b")), run_of(one("a", 1.06e-3, seed=1), one("b", 1.06e-3, seed=2))
    report = compare_runs(before, now, GateOptions(0.005, {"b": 0.10}))
    assert [o.word for o in report.outcomes] == [SLOWER, NO_SLOWER] or report.outcomes[1].word == EQUIVALENT


@pytest.mark.parametrize("text, value", [("2%", 0.02), ("0.5 %", 0.005), ("10", 0.1), (".5%", 0.005)])
def test_percentages(text: str, value: float) -> None:
    assert parse_percent(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "0", "-1%", "five", "nan", "inf", "1e3%", "2000%"])
def test_bad_percentages_and_outcomes_are_one_line(text: str) -> None:
    with pytest.raises(UserError, match="percentage"):
        parse_percent(text)
    with pytest.raises(UserError, match="did you mean slower"):
        parse_fail_on("slow")


@pytest.mark.parametrize(
    "samples, says",
    [
        ([], "no samples"),
        ([[1.0, math.nan]], "1 of 2 samples are no time, such as not a number"),
        ([[0.0]], "the clock stood still or went backwards"),
        ([[1.0], [-1e-3]], "such as -0.001 s: the clock"),
        ([[math.inf]], "inf s"),
        ([[1.0, 2.0]], ""),
    ],
)
def test_bad_samples(samples: list[list[float]], says: str) -> None:
    assert says in bad_samples(samples)
    assert bool(bad_samples(samples)) == bool(says)


def pytest_file(path: Path, benches: list[dict[str, Any]]) -> Path:
    path.write_text(json.dumps({"machine_info": {"cpu": {"brand_raw": "x"}}, "benchmarks": benches}))
    return path


def own_record(name: str, level: float = 1e-3, **change: Any) -> dict[str, Any]:
    rng = np.random.default_rng(7)
    samples = (level * np.exp(rng.normal(0, 0.002, 80))).tolist()
    canary = np.exp(rng.normal(-7, 0.002, (8, 16))).tolist()
    parts = {"samples": [10] * 8, "canary": "compute/l1", "canary_version": "1 x", "canary_s": canary}
    info = {
        "case": name,
        "samples_s": samples,
        "processes": parts,
        "environment": KEY,
        "cache": "warm",
    } | change
    return {"fullname": name, "extra_info": info, "stats": {"median": level}}


def test_own_files_are_read_by_process_and_damage_is_told_per_bench(tmp_path: Path) -> None:
    bad = own_record("bad")
    bad["extra_info"]["samples_s"][3] = -1.0
    short = own_record("short", samples_s=[1e-3] * 70)
    path = pytest_file(
        tmp_path / "a.json", [own_record("good"), bad, short, own_record("twice"), own_record("twice")]
    )
    run = read_run(path)
    assert len(run.benches["good"].samples_s) == 8
    assert run.benches["good"].key["canary"] == "compute/l1, version 1 x"
    assert "1 of 80 samples are no time" in run.benches["bad"].problem
    assert "damaged" in run.benches["short"].problem
    assert "twice" in run.benches["twice"].problem
    report = compare_runs(run, run, GateOptions(0.05))
    assert {o.name: o.word for o in report.outcomes} == {
        "good": EQUIVALENT, "bad": NOT_COMPARABLE, "short": NOT_COMPARABLE, "twice": NOT_COMPARABLE,
    }  # fmt: skip


@pytest.mark.parametrize(
    "content, says",
    [
        (b"", "is empty"),
        (b"  \n", "is empty"),
        (b'{"benchmarks": [', "cut off"),
        (b'{"benchmarks" 1}', "is no JSON: .*line 1 column 15"),
        (b"\xff\xfe\x00", "not text in UTF-8"),
        (b"[]", "of no tool that is known"),
        (b'{"benchmarks": [], "other": 1}', "of no tool that is known"),
        (b'{"machine_info": {}, "benchmarks": [1]}', "looks like pytest-benchmark's, but is damaged"),
        (b'{"machine_info": {}, "benchmarks": [{}]}', "looks like pytest-benchmark's, but is damaged"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_files_that_are_no_saved_run_get_one_line(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=says):
        read_run(path)


def test_a_huge_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.json"
    with path.open("wb") as file:
        file.truncate(1 << 30)  # sparse
    with pytest.raises(UserError, match=r"has 1\.0 GiB; files up to 256 MiB are read"):
        read_run(path)
    with pytest.raises(UserError, match="can't read"):
        read_run(tmp_path / "nothing.json")


def test_a_folder_is_one_side_and_its_damaged_files_are_noted(tmp_path: Path) -> None:
    for n in range(7):
        pytest_file(tmp_path / f"{n}.json", [{"fullname": "a", "stats": {"data": [1e-3 + n * 1e-6]}}])
    (tmp_path / "z.json").write_text("{")
    run = read_runs(str(tmp_path))
    assert len(run.benches["a"].samples_s) == 7
    assert any("z.json is no JSON" in note for note in run.notes)
    with pytest.raises(UserError, match="no files match"):
        read_runs(str(tmp_path / "*.none"))
