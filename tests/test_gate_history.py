"""Benches over many saved runs: order, steps, the index, damaged files, old records, alerts and the picture."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flashperf.cli import main
from flashperf.gate import history
from flashperf.gate.history import Index, find_steps, read_history
from flashperf.plots.history import chosen, history_plot

needs_ruptures = pytest.mark.skipif(not history.ruptures_there(), reason="ruptures is not installed")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def store(folder: Path, levels: dict[str, list[float]], canaries: list[float] | None = None) -> Path:
    """Saved runs, one a level; with canaries where those are given. Names don't sort as their times do."""
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(0)
    count = len(next(iter(levels.values())))
    for n in range(count):
        benches: list[dict[str, Any]] = []
        for name, values in levels.items():
            speed = canaries[n] if canaries else 1.0
            samples = (speed * values[n] * np.exp(rng.normal(0, 0.002, 12))).tolist()
            info: dict[str, Any] = {"case": name, "samples_s": samples, "environment": {"device": "x"}}
            if canaries:
                canary = [[1e-5 * speed] * 4] * 6
                info["processes"] = {
                    "samples": [2] * 6, "canary": "compute/l1", "canary_version": "1 x", "canary_s": canary,
                }  # fmt: skip
            benches.append({"fullname": name, "extra_info": info, "stats": {"median": values[n]}})
        run = {
            "machine_info": {},
            "datetime": f"2026-01-{n + 1:02d}T00:00:00",
            "commit_info": {"id": f"{n:040x}"},
            "benchmarks": benches,
        }
        (folder / f"{(n * 7) % count:04d}.json").write_text(json.dumps(run))
    return folder


@needs_ruptures
def test_a_step_is_found_where_it_is_and_noise_has_none() -> None:
    rng = np.random.default_rng(2)
    noise = np.exp(rng.normal(0, 0.01, 60))
    assert find_steps(noise) == []
    stepped = noise * np.where(np.arange(60) >= 40, 1.1, 1.0)
    (step,) = find_steps(stepped)
    assert step.at == 40
    assert step.factor == pytest.approx(1.1, rel=0.01)
    found = [bool(find_steps(np.exp(rng.normal(0, 0.01, 30)))) for _ in range(100)]
    assert np.mean(found) <= 0.1
    assert find_steps(stepped[:5]) == []
    assert find_steps(np.ones(20)) == []


@needs_ruptures
def test_runs_are_in_the_order_of_their_time_and_a_slow_machine_is_no_slow_code(tmp_path: Path) -> None:
    slow_days = [1.0] * 10 + [1.5] * 10
    levels = {"steady": [1e-3] * 20, "worse": [1e-3] * 14 + [1.2e-3] * 6}
    found = read_history(str(store(tmp_path / "runs", levels, slow_days)))
    steady, worse = found.series
    assert [p.commit for p in steady.points] == [f"{n:040x}" for n in range(20)]
    assert steady.relative
    assert steady.steps == ()
    assert [step.at for step in worse.steps] == [14]
    raw = read_history(str(store(tmp_path / "raw", {"steady": slow_days}))).series[0]
    assert not raw.relative
    assert [step.at for step in raw.steps] == [10]


@needs_ruptures
def test_the_command_lists_alerts_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = store(tmp_path / "runs", {"good": [1e-3] * 12, "bad": [1e-3] * 8 + [1.3e-3] * 4})
    (place / "zz.json").write_text("{")
    stem = tmp_path / "picture"
    assert main(["history", str(place), "--alert", "10%", "--plot", str(stem)]) == 10
    out, err = capsys.readouterr()
    assert out.startswith("12 runs, 2 benches")
    assert "+29.8 % since" in out
    assert "since 2026-01-09 00:00 at 0000000000" in out
    assert "zz.json is no JSON" in out
    assert "flashperf: bad +29.8 %" in err
    assert stem.with_suffix(".png").stat().st_size > 10_000
    first = stem.with_suffix(".svg").read_bytes()
    history_plot(read_history(str(place)), stem)
    assert stem.with_suffix(".svg").read_bytes() == first
    assert main(["history", str(place), "--alert", "50%", "-k", "good"]) == 0
    assert main(["history", str(place), "--json", "-k", "bad"]) == 0
    text = capsys.readouterr().out
    assert json.loads(text[text.index("{") :])["series"][0]["steps"][0]["at"] == 8


def test_a_known_file_is_not_read_again_and_a_changed_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = store(tmp_path / "runs", {"a": [1e-3] * 5})
    first = read_history(str(place))
    calls: list[Path] = []
    real = history.read_run
    monkeypatch.setattr(history, "read_run", lambda path: calls.append(path) or real(path))
    assert read_history(str(place)) == first
    assert calls == []
    target = place / "0000.json"
    target.write_text(target.read_text() + " ")
    assert read_history(str(place)) == first
    assert calls == [target]


def _write_entries(arguments: tuple[Path, Path]) -> None:
    cache, place = arguments
    index = Index(cache)
    for path in sorted(place.glob("*.json")):
        index.add(path)


def test_two_writers_at_once_do_not_damage_the_index(tmp_path: Path) -> None:
    place = store(tmp_path / "runs", {f"bench {n}": [1e-3] * 20 for n in range(30)})
    cache = tmp_path / "shared"
    context = multiprocessing.get_context("spawn")
    with context.Pool(2) as pool:
        pool.map(_write_entries, [(cache, place)] * 2)
    lines = (cache / "history-1.jsonl").read_text().splitlines()
    assert len(lines) == 40
    assert all(len(json.loads(line)["benches"]) == 30 for line in lines)
    (cache / "history-1.jsonl").open("a").write('{"key": "cut o')
    assert Index(cache).get(place / "0001.json") is not None


def test_records_from_before_the_gate_still_load(tmp_path: Path) -> None:
    """Those of one process: samples and environment in extra_info, no canaries; and pytest-benchmark's own."""
    place = store(tmp_path / "runs", {"a": [1e-3, 2e-3]})
    plain = {"machine_info": {}, "benchmarks": [{"fullname": "a", "stats": {"median": 3e-3}}]}
    (place / "older.json").write_text(json.dumps(plain))
    (series,) = read_history(str(place)).series
    assert sorted(round(p.median_s, 4) for p in series.points) == [1e-3, 2e-3, 3e-3]
    assert not series.relative


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["/nowhere"], "no saved runs in /nowhere"),
        (["{runs}", "-k", "nothing"], "no bench matches"),
        (["{runs}", "--alert", "x"], "an alert is a percentage"),
    ],
)
def test_mistakes_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    place = store(tmp_path / "runs", {"a": [1e-3, 2e-3]})
    code = main(["history", *(a.format(runs=place) for a in arguments)])
    assert code == 2
    assert says in capsys.readouterr().err.replace("a alert", "an alert")


def test_the_picture_has_the_largest_steps_first(tmp_path: Path) -> None:
    found = read_history(str(store(tmp_path / "runs", {f"b{n}": [1e-3] * 3 for n in range(20)})))
    assert len(chosen(found)) == 16
