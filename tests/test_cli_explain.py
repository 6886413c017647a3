"""``flashperf explain`` with measuring stubbed: what reaches it, what is printed and written, exit codes."""

from __future__ import annotations

import json
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any

import pytest
from cli_stub import Install, stub

from flashperf import cli
from flashperf.commands import explain as command

__all__ = ["stub"]  # the fixture


def test_explain_measures_the_pipeline_prints_and_writes(stub: Install, capsys: Any, tmp_path: Path) -> None:
    calls = stub("paradox")
    arguments = "--budget 20 --scenario batch --flash b --standard tiling=naive --model small --backend cpu"
    assert cli.main(["explain", *arguments.split(), "--seed", "3", "--out", "there"]) == 0
    (call,) = calls
    assert call.pop("progress") is not None
    assert call == {
        "positional": (),
        "budget_s": 20.0,
        "scenario": "batch",
        "flash": "b",
        "standard": "tiling=naive",
        "model": "small",
        "backend": "cpu",
        "seed": 3,
        "out": Path("there"),
        "began": command.BEGAN,
    }
    printed = capsys.readouterr()
    assert "Flash takes 2.21 times as long as Standard" in printed.out
    assert "flashperf: measuring: stub" in printed.err
    for name in ("record.jsonl", "report.html", "waterfall.svg", "waterfall.png"):
        assert f"there/{name}" in printed.out
        assert (tmp_path / "there" / name).stat().st_size > 0


def test_defaults_are_left_to_the_pipeline_and_the_folder_is_new(stub: Install, tmp_path: Path) -> None:
    calls = stub("paradox")
    assert cli.main(["explain", "--quiet"]) == 0
    assert cli.main(["explain", "--quiet"]) == 0
    assert set(calls[0]) == {"positional", "budget_s", "seed", "out", "began", "progress"}
    assert calls[0]["budget_s"] == 60.0
    assert calls[0]["out"] != calls[1]["out"]
    assert all(call["out"].parent == Path("flashperf-out") for call in calls)


def test_a_folder_of_the_same_second_gets_a_number(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Still(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Still:
            return cls(2026, 11, 30, 12, 34, 56)

    monkeypatch.setattr(command, "datetime", Still)
    names = []
    for _ in range(3):
        names.append(command.fresh_folder(tmp_path).name)
        (tmp_path / names[-1]).mkdir()
    assert names == ["20261130-123456", "20261130-123456-2", "20261130-123456-3"]


def test_a_factory_gets_its_levels(stub: Install) -> None:
    calls = stub("single_switch")
    arguments = [
        "explain",
        "mymodel:build",
        "--standard",
        "compile=False, dtype=f32",
        "--flash",
        "compile=True,dtype=f16",
    ]
    assert cli.main([*arguments, "--quiet"]) in (0, 3)
    standard, flash = {"compile": "False", "dtype": "f32"}, {"compile": "True", "dtype": "f16"}
    assert calls[0]["positional"] == ("mymodel:build", standard, flash)


def test_replay_reads_a_record_and_writes_the_files(stub: Install, capsys: Any, tmp_path: Path) -> None:
    calls = stub("paradox")
    Path("old.jsonl").write_text('{"kind": "group"}\n')
    assert cli.main(["explain", "--replay", "old.jsonl", "--out", "new"]) == 0
    assert calls == [{"positional": (Path("old.jsonl"),)}]
    assert (tmp_path / "new" / "report.html").exists()
    assert "record old.jsonl" in capsys.readouterr().out


def test_json_is_all_that_goes_to_standard_output(stub: Install, capsys: Any) -> None:
    stub("paradox")
    assert cli.main(["explain", "--json", "--out", "there"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["attribution"]["workers"] == 9
    assert "report.html" in printed.err


def test_quiet_prints_the_words_and_the_files_only(stub: Install, capsys: Any) -> None:
    stub("paradox")
    cli.main(["explain", "-q", "--out", "there"])
    printed = capsys.readouterr()
    assert printed.out.startswith("Flash takes 2.21 times as long")
    assert "Alone" not in printed.out
    assert printed.err == ""


@pytest.mark.parametrize(
    ("sample", "code", "said"),
    [
        ("paradox", 0, ""),
        ("nothing", 3, "too noisy: the widest share is known to ±0.060 in log units"),
        ("partial", 130, "interrupted: the result is partial"),
    ],
)
def test_the_exit_code_says_how_sure_the_result_is(
    stub: Install, capsys: Any, sample: str, code: int, said: str
) -> None:
    stub(sample)
    assert cli.main(["explain", "--out", "there"]) == code
    printed = capsys.readouterr()
    assert said in printed.err
    assert "there/report.html" in printed.out


def test_what_was_measured_before_a_failure_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)

    def measure(**named: Any) -> Any:
        named["out"].mkdir(parents=True)
        (named["out"] / "record.jsonl").write_text('{"kind": "header"}\n{"kind": "group"}\n')
        raise RuntimeError("worker 3 died")

    monkeypatch.setattr("flashperf.explain.explain_pipeline", measure)
    assert cli.main(["explain", "--out", "there"]) == 1
    said = "worker 3 died; what was measured is kept: flashperf explain --replay there/record.jsonl"
    assert capsys.readouterr().err.endswith(f"flashperf: {said}\n")


def test_a_folder_that_cannot_be_written_is_said(stub: Install, capsys: Any) -> None:
    stub("paradox")
    Path("file").write_text("")
    Path("old.jsonl").write_text("{}\n")
    assert cli.main(["explain", "--replay", "old.jsonl", "--out", "file/inside", "-q"]) == 2
    assert "can't make the folder file/inside" in capsys.readouterr().err
