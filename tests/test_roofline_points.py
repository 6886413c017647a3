"""Kernels under roofs: places, words, records; the pictures made of them."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
from roofs_samples import point, roofs, run

from flashperf import cli
from flashperf.errors import UserError
from flashperf.plots.roofline import description, roofline_page, roofline_picture, roofline_svg
from flashperf.records import Cost, Placement
from flashperf.roofline import Roof, place, words
from flashperf.roofs import save_roofs, suite
from flashperf.roofs.points import Point, RooflineRun
from flashperf.roofs.storage import write_roofs
from flashperf.store import RecordError, RecordWriter

ROOF = Roof("L2", 100e9, 10e9, "given", launch_s=1e-6, call_s=4e-6, compute_name="f32 fma", uncertainty=0.02)


@pytest.mark.parametrize(
    ("flops", "n_bytes", "seconds", "launches", "said"),
    [
        (0, 10**9, 0.125, 1, "memory-bound, 80 % of L2"),
        (0, 10**9, 0.5, 1, "near no roof: 20 % of L2"),
        (10**11, 10**6, 1.25, 1, "compute-bound, 80 % of f32 fma"),
        (10, 10, 12e-6, 6, "launch-bound: 83 % of the time is dispatch"),
        (10, 10, 50e-6, 1, "near no roof: 10 % of the time is dispatch"),
        (0, 10**9, 0.099, 1, "memory-bound, 101 % of L2"),
        (0, 10**9, 0.05, 1, "model error: 2.00 x the L2 roof"),
    ],
)
def test_the_distance_to_the_roof_in_words(
    flops: int, n_bytes: int, seconds: float, launches: int, said: str
) -> None:
    assert words(place(flops, n_bytes, seconds, ROOF, launches), ROOF) == said


def test_only_what_is_above_both_uncertainties_is_a_model_error() -> None:
    assert not place(0, 10**9, 0.099, ROOF).model_error
    assert place(0, 10**9, 0.095, ROOF).model_error
    assert not place(0, 10**9, 0.095, ROOF, uncertainty=0.05).model_error
    assert "2 times what the memory roof allows" in place(0, 10**9, 0.05, ROOF).model_error
    assert "10 times what the compute roof allows" in place(10**12, 1, 1.0, ROOF).model_error


def test_without_a_roof_the_words_say_so() -> None:
    assert words(Placement(1, 1, 1, float("nan"), "", "", "")) == "no roof measured"


def test_intensity_runs_from_the_bytes_moved_to_the_least() -> None:
    one = point("x", 1e-3, Cost(1000, 80, 20))
    assert one.intensity == (10.0, 20.0)
    assert one.flops_per_s.low < 1e6 < one.flops_per_s.high
    assert one.seconds.value == pytest.approx(1e-3, rel=1e-3)


def test_the_working_set_is_that_of_one_launch() -> None:
    assert point("x", 1.0, Cost(1, 600, 300, launches=3)).working_set_bytes == 300
    assert point("x", 1.0, Cost(1, 600, 300)).working_set_bytes == 450  # no more than the least bytes


def test_cases_with_threads_are_placed_under_the_roofs_of_all() -> None:
    one = point("x", 1e-3, Cost(10**6, 10**5, 0))
    many = dataclasses.replace(one, case_id=one.case_id + "-threads=4")
    assert (one.wants_threads, many.wants_threads) == (1, 4)
    assert many.roof(roofs()).bytes_per_s == pytest.approx(2 * one.roof(roofs()).bytes_per_s, rel=1e-3)


def written(path: Path, ran: RooflineRun, end: bool = True) -> Path:
    with RecordWriter(path) as writer:
        write_roofs(writer, ran.roofs)
        for one in ran.points:
            writer.write("point", point=one)
        if end:
            writer.write("end", busy_reason=ran.busy_reason, left_out=ran.left_out)
    return path


def test_a_run_is_read_back_also_when_it_was_cut_off(tmp_path: Path) -> None:
    assert suite.read_run(written(tmp_path / "a.jsonl", run())) == run()
    cut = suite.read_run(written(tmp_path / "b.jsonl", run(), end=False))
    assert cut.points == run().points
    assert cut.left_out == ("the run was interrupted",)
    RecordWriter(tmp_path / "c.jsonl").close()
    with pytest.raises(RecordError, match="no roofs"):
        suite.read_run(tmp_path / "c.jsonl")


def test_pictures_are_the_same_byte_for_byte(tmp_path: Path) -> None:
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        roofline_picture(run(), "toy", folder / "toy")
        roofline_page(run(), folder / "page")
    files = sorted(file.name for file in (tmp_path / "a").iterdir())
    assert files == ["page.png", "page.svg", "toy.png", "toy.svg"]
    for file in files:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_a_picture_says_what_it_shows_without_being_seen() -> None:
    svg = roofline_svg(run(), "toy")
    assert "<title>toy: measured kernels under their roofs</title>" in svg
    assert "split rows=64  cols=1024 (warm)" in description(run(), "toy")
    assert "DRAM 10.00 GB/s" in svg
    assert "f32 fma 200 GFLOP/s" in svg
    assert "bf16 amx" not in svg  # roofs of formats that no point has are left out


def test_a_point_above_its_roof_is_marked_and_named() -> None:
    assert "impossible rows=64  cols=1024 (warm): model error: 5.00 x the compute roof" in description(
        run(), "product"
    )
    assert "#b00020" in roofline_svg(run(), "product")
    assert "#b00020" not in roofline_svg(run(), "toy")


def test_a_mechanism_without_arithmetic_has_words_but_no_point() -> None:
    svg = roofline_svg(run(), "moves")
    assert "(no FLOPs)" in svg


def test_a_roof_that_meets_the_peak_left_of_the_plane_has_no_label() -> None:
    """All points at 10 FLOP per byte and more: L1 and L2 end at 0.5 and 2."""
    product = Cost(10**9, 10**8, 0)
    found = RooflineRun(
        roofs(), (point("dense", 1e-2, product), point("denser", 1e-2, Cost(10**9, 10**7, 0)))
    )
    drawn = roofline_svg(found, "toy")
    assert "DRAM 10.00 GB/s" in drawn
    assert "L1 400 GB/s" not in drawn
    assert "L2 100 GB/s" not in drawn


def test_the_command_draws_a_record_and_prints_places(tmp_path: Path, capsys: Any) -> None:
    record = written(tmp_path / "run.jsonl", run())
    assert cli.main(["roofline", "--from", str(record), "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert re.search(r"split +warm +128 µs +near no roof: 25 % of f32 fma", said)
    assert "rows=64-cols=1024 (warm) is 5.00 x its compute roof. It is above by more" in " ".join(
        said.split()
    )
    assert "Cold caches: what they still held was not measured." in said
    assert "Left out: toy/other: no driver." in said
    assert "The machine was busy: load 3.00 on 2 cores." in said
    assert all(len(line) <= 80 for line in said.splitlines() if not line.startswith("wrote"))
    assert {file.name for file in (tmp_path / "out").iterdir()} == {
        *(f"roofline-{name}.{kind}" for name in ("toy", "product", "moves") for kind in ("svg", "png")),
        "roofline.svg",
        "roofline.png",
    }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["roofline", "nonsense"], "unknown mechanism 'nonsense'"),
        (["roofline", "--backend", "cuda", "fusion"], "cuda kernels can't be placed under the roofs of"),
        (["roofs", "--backend", "cdua"], "unknown backend 'cdua'"),
        (["roofline", "--from", "missing.jsonl"], "can't read missing.jsonl"),
        (["roofs", "--from", "missing.jsonl"], "can't read missing.jsonl"),
        (["roofs", "--processes", "1"], "3 processes or more"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str], said: str, capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("flashperf.roofs.roofs_for", lambda progress, backend: (roofs(), tmp_path, False))
    assert cli.main(arguments) == 2
    printed = capsys.readouterr()
    assert said in printed.err
    assert printed.err.count("\n") == 1


def test_a_mechanism_that_the_record_lacks_is_named(tmp_path: Path, capsys: Any) -> None:
    record = written(tmp_path / "run.jsonl", run())
    assert cli.main(["roofline", "fusion", "--from", str(record)]) == 2
    assert "unknown mechanism in run.jsonl 'fusion'" in capsys.readouterr().err


def test_roofs_are_printed_with_intervals(tmp_path: Path, capsys: Any) -> None:
    path = save_roofs(roofs(), tmp_path / "roofs.jsonl")
    assert cli.main(["roofs", "--from", str(path)]) == 0
    said = capsys.readouterr().out
    assert re.search(r"L1 +load +400 GB/s ±1.5 % +800 GB/s ±1.5 %", said)
    assert re.search(r"bf16 +amx +3.20 TFLOP/s", said)
    assert re.search(r"call from Python +100.0? ns", said)
    assert all(len(line) <= 80 for line in said.splitlines())
    assert cli.main(["roofs", "--from", str(path), "--json"]) == 0
    assert '"per_process"' in capsys.readouterr().out


def test_real_cases_are_timed_checked_first_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three processes, the first two cases of a mechanism."""
    found, _ = suite.bench_cases(["launch"], "cpu")
    monkeypatch.setattr(suite, "bench_cases", lambda names, backend: (found[:2], ["x: why"]))
    ran = suite.measure_suite(["launch"], roofs(), processes=3, cold=False, record=tmp_path / "r.jsonl")
    assert [p.case.variant for p in ran.points] == ["whole", "chunked"]
    assert all(len(p.per_process_s) == 3 and min(p.per_process_s) > 0 for p in ran.points)
    assert ran.points[1].cost.launches == 64
    assert suite.read_run(tmp_path / "r.jsonl").points == ran.points
    assert isinstance(ran.points[0], Point)


def test_mechanisms_take_turns_and_what_cannot_run_has_its_reason() -> None:
    found, left_out = suite.bench_cases(["fusion", "launch"], "cpu")
    assert [mechanism.name for mechanism, _ in found[:4]] == ["fusion", "launch"] * 2
    assert len({case.id for _, case in found}) == len(found)
    assert left_out == []
    assert suite.bench_cases(["launch"], "cuda")[0] or suite.bench_cases(["launch"], "cuda")[1]


def test_what_cannot_be_placed_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    without = dataclasses.replace(roofs(), ceilings=tuple(c for c in roofs().ceilings if c.name != "f32"))
    with pytest.raises(UserError, match="no unit was measured that computes in its format"):
        suite.measure_suite(["launch"], without)
