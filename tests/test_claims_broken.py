"""Claims whose measuring breaks: what was measured is kept, why is said, and the exit code tells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scripted_claims import ScriptedWorker, around, measured, started

from flashperf import cli
from flashperf.claims import analysis, run
from flashperf.claims.judge import CONTRADICTED, DIRECTION, NOT_MEASURED, REPRODUCED
from flashperf.records import Interval
from flashperf.store import RecordWriter
from flashperf.workers import WorkerError


def states(report: analysis.ClaimsReport) -> dict[str, str]:
    return {one.claim.id: one.verdict.state for one in report.judged}


def test_what_a_machine_lacks_is_no_failure_and_what_breaks_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lacking = measured(monkeypatch, tmp_path / "lacking", ["A13", "B1"])  # Flash B ends with a UserError
    assert (states(lacking), lacking.failures) == ({"A13": DIRECTION, "B1": NOT_MEASURED}, ())
    assert cli.main(["claims", "--replay", str(tmp_path / "lacking" / "record.jsonl")]) == 0
    broken = measured(monkeypatch, tmp_path / "broken", ["A13", "A17"], wrong=("graph",))
    assert states(broken) == {"A13": NOT_MEASURED, "A17": CONTRADICTED}
    assert broken.failures == ("worker 0 failed: WrongResult: graph is wrong",)
    for extra in ([], ["--markdown"], ["--json"]):
        capsys.readouterr()
        assert cli.main(["claims", "--replay", str(tmp_path / "broken" / "record.jsonl"), *extra]) == 1
        assert "WrongResult: graph is wrong" in capsys.readouterr().out


def test_a_worker_that_dies_leaves_what_was_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answered = ScriptedWorker.call

    def dying(self: ScriptedWorker, method: str, timeout_s: float = 0.0, **arguments: Any) -> Any:
        calls.append(method)
        if method == "block" and calls.count("block") == 8:
            raise WorkerError("worker 2 was ended by signal 9: it said nothing")
        return answered(self, method, timeout_s, **arguments)

    calls: list[str] = []
    monkeypatch.setattr(ScriptedWorker, "call", dying)
    report = measured(monkeypatch, tmp_path, ["A13", "A17", "A1"])
    assert states(report) == {"A13": DIRECTION, "A17": CONTRADICTED, "A1": REPRODUCED}
    assert report.failures == ("worker 2 was ended by signal 9: it said nothing",)
    assert all(worker.stopped for worker in started)
    for extra in ([], ["--markdown"]):  # no row says it, as all were measured
        assert cli.main(["claims", "--replay", str(tmp_path / "record.jsonl"), *extra]) == 1
        assert "Failed: worker 2 was ended by signal 9" in capsys.readouterr().out


def test_a_bug_in_one_part_does_not_cost_the_next(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(*_: Any) -> dict[str, Interval]:
        raise ZeroDivisionError("division\nby zero")

    report = measured(monkeypatch, tmp_path, ["A7", "A1"], scenario=broken)
    assert states(report) == {"A7": NOT_MEASURED, "A1": REPRODUCED}
    assert report.failures == ("ZeroDivisionError: division by zero",)


def test_an_interrupt_inside_a_part_ends_the_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupted(name: str, out: Path, *_: Any) -> dict[str, Interval]:
        with RecordWriter(out / "record.jsonl") as writer:  # a part keeps what it has and returns
            writer.write("end", stopped="interrupted", seconds=1.0)
        return {"scenario parallelism: data parallel": around(0.7)}

    report = measured(monkeypatch, tmp_path, ["A7", "A18", "A1"], scenario=interrupted)
    assert report.stopped == "interrupted"
    assert states(report) == {"A7": REPRODUCED, "A18": NOT_MEASURED, "A1": NOT_MEASURED}
    assert cli.main(["claims", "--replay", str(tmp_path / "record.jsonl")]) == 130


def test_a_record_that_was_cut_off_is_judged_as_far_as_it_goes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured(monkeypatch, tmp_path, ["A13", "A1"])
    path = tmp_path / "record.jsonl"
    text = path.read_text()
    path.write_text(text[: text.index('"kind": "value"') + 30])
    report = analysis.read_report(path)
    assert states(report) == {"A13": DIRECTION, "A1": NOT_MEASURED}
    assert report.stopped == "killed"
    assert cli.main(["claims", "--replay", str(path)]) == 1
    assert "ended early (killed)" in capsys.readouterr().out


def test_the_efficiency_of_two_ranks_is_judged_and_not_their_speed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def in_half_the_time(name: str, *_: Any) -> dict[str, Interval]:
        return {"scenario parallelism: data parallel": around(0.5, 1.01)}

    report = measured(monkeypatch, tmp_path, ["A7"], scenario=in_half_the_time)
    (one,) = report.judged
    assert one.measured is not None
    assert one.measured.value == pytest.approx(1.0)
    assert one.verdict.state == CONTRADICTED  # twice the speed on two ranks is no loss


def test_a_claim_named_twice_is_measured_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[list[str]] = []

    def run_claims(claims: Any, *_: Any) -> Path:
        asked.append([claim.id for claim in claims])
        measured(monkeypatch, tmp_path, asked[0])
        return tmp_path / "record.jsonl"

    monkeypatch.setattr(run, "run_claims", run_claims)
    assert cli.main(["claims", "B12", "b12", "--out", str(tmp_path)]) == 0
    assert asked == [["B12"]]
    assert capsys.readouterr().out.count("the union over the true span") == 1
