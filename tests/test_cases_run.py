"""Running cases with workers that answer from a script, and reading the record back."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from scripted_cases import ScriptedWorker, measured

from flashperf import cli
from flashperf.cases import analysis, run
from flashperf.cases.guards import Machine
from flashperf.cases.registry import case_named
from flashperf.errors import UserError
from flashperf.progress import NullProgress
from flashperf.report import cases as render
from flashperf.store import RecordWriter

ROOT = Path(__file__).resolve().parent.parent


def test_a_case_is_measured_in_all_processes_and_diagnosed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    report, workers = measured(monkeypatch, tmp_path, ["A4"])
    (result,) = report.results
    assert result.outcome.state == "as reported"
    assert result.outcome.diagnosis is not None
    assert result.outcome.diagnosis.mechanism == "useless work"
    assert result.measured is not None
    assert result.measured.pair.ratio.processes == run.WORKERS
    assert result.measured.pair.ratio.blocks == run.WORKERS * run.MOST_ROUNDS
    assert result.measured.pair.ratio.ratio.value == pytest.approx(2.0, rel=0.01)
    assert (report.stopped, report.failed) == ("done", False)
    assert all(worker.stopped for worker in workers)


def test_every_case_has_processes_of_its_own_and_loses_none_to_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    report, workers = measured(monkeypatch, tmp_path, ["A4", "A5"], failing={"A4": ("prepare",)})
    assert len(workers) == 2 * run.WORKERS
    states = [(result.case.id, result.outcome.state, result.outcome.why) for result in report.results]
    assert states[0] == ("A4", "not measured", "prepare did not run")
    assert states[1][1] == "as reported"
    assert report.failed
    assert all(worker.stopped for worker in workers)


def test_fresh_processes_are_told_call_by_call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    report, workers = measured(monkeypatch, tmp_path, ["A9"])
    found = report.results[0].outcome.diagnosis
    assert found is not None
    assert found.mechanism == "recompilation"
    assert len(workers) == 2 * run.FRESH_PROCESSES
    assert all(worker.stopped for worker in workers)
    assert "the median is 1.0" in " ".join(render.words(report.results[0]))


def test_a_machine_without_torch_gets_a_reason_and_starts_no_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bare = Machine(torch="", isa=frozenset(), cores=2, compiler=True, cuda=False)
    report, workers = measured(monkeypatch, tmp_path, ["A1", "A4"], machine=bare)
    assert not workers
    assert [result.outcome.why for result in report.results] == [
        "needs torch: pip install 'flashperf[torch]'"
    ] * 2
    assert not report.failed


def test_a_case_that_is_not_to_be_expected_here_is_measured_and_said_not_to_apply(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    modern = Machine(torch="2.13.0", isa=frozenset({"avx512_fp16"}), cores=2, compiler=True, cuda=False)
    report, _ = measured(monkeypatch, tmp_path, ["A3"], machine=modern)
    outcome = report.results[0].outcome
    assert (outcome.state, outcome.why) == ("does not apply", "this CPU has avx512_fp16")
    assert outcome.diagnosis is not None


def test_the_budget_ends_the_run_and_what_was_measured_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    report, _ = measured(monkeypatch, tmp_path, ["A4", "A5"], budget_s=45.0, slow_clock=True)
    assert report.stopped == "budget"
    assert [result.outcome.state for result in report.results] == ["as reported", "not measured"]
    assert report.results[1].outcome.why == "the budget ended before it"


def test_a_budget_that_ends_while_preparing_ends_the_preparing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    report, _ = measured(monkeypatch, tmp_path, ["A4"], budget_s=3.0, slow_clock=True)
    assert report.stopped == "budget"
    assert report.results[0].outcome.why == "the budget ended before it"
    assert (tmp_path / "record.jsonl").read_text().count(
        '"kind": "prepared"'
    ) == run.WORKERS  # of three pairs


def test_an_interrupt_keeps_what_was_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls = {"n": 0}
    block = ScriptedWorker._block

    def interrupted(self: ScriptedWorker, **arguments: Any) -> Any:
        calls["n"] += 1
        if calls["n"] == 20:
            raise KeyboardInterrupt
        return block(self, **arguments)

    monkeypatch.setattr(ScriptedWorker, "_block", interrupted)
    report, workers = measured(monkeypatch, tmp_path, ["A4", "A5"])
    assert report.stopped == "interrupted"
    assert report.results[0].measured is not None
    assert all(worker.stopped for worker in workers)


def test_a_record_that_was_cut_off_is_read_as_killed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    measured(monkeypatch, tmp_path, ["A4"])
    path = tmp_path / "record.jsonl"
    text = path.read_text()
    path.write_text(text[: int(0.8 * len(text))])
    report = analysis.read_report(path)
    assert report.stopped == "killed"
    assert math.isnan(report.seconds)
    assert report.results[0].measured is not None
    assert cli.main(["cases", "--replay", str(path)]) == 1


def test_a_record_of_something_else_is_refused(tmp_path: Path) -> None:
    with RecordWriter(tmp_path / "record.jsonl") as writer:
        writer.write("explain", seed=0)
    with pytest.raises(UserError, match="not a record of flashperf cases"):
        analysis.read_report(tmp_path / "record.jsonl")


@pytest.mark.parametrize("budget, seed", [(0.0, 0), (-1.0, 0), (math.inf, 0), (10.0, -1)])
def test_a_budget_or_seed_that_is_none_is_refused(tmp_path: Path, budget: float, seed: int) -> None:
    with pytest.raises(UserError):
        run.run_cases([case_named("A4")], tmp_path / "out", budget, seed, NullProgress())
    assert not (tmp_path / "out").exists()


def test_the_command_lists_replays_and_refuses(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured(monkeypatch, tmp_path, ["A4", "A5"])
    record = str(tmp_path / "record.jsonl")
    assert cli.main(["cases", "--list"]) == 0
    assert "A10 streamed-weights" in capsys.readouterr().out
    assert cli.main(["cases", "--replay", record]) == 0
    out = capsys.readouterr().out
    assert "A4 padded-batch" in out
    assert "Mechanism: useless work" in out
    assert all(len(line) <= 100 and line == line.rstrip() for line in out.splitlines())
    assert cli.main(["cases", "A4", "--replay", record]) == 0
    assert "requests=16, longest=16" in capsys.readouterr().out
    assert cli.main(["cases", "--replay", record, "--markdown"]) == 0
    assert "| A5 window-as-mask |" in capsys.readouterr().out
    assert cli.main(["cases", "--replay", record, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cases"][0]["outcome"]["state"] == "as reported"
    assert cli.main(["cases", "A1", "--replay", record]) == 2
    assert (
        "does not hold the case A1; it holds A4, A5, padded-batch, window-as-mask" in capsys.readouterr().err
    )
    assert cli.main(["cases", "A99"]) == 2
    assert "unknown case 'A99'" in capsys.readouterr().err


def test_the_committed_run_has_the_sign_right_wherever_a_case_applies() -> None:
    report = analysis.read_report(ROOT / "results" / "xeon-amx" / "cases.jsonl")
    assert [result.case.id for result in report.results] == [f"A{n}" for n in range(1, 11)]
    assert not report.failed
    for result in report.results:
        assert result.outcome.state in ("as reported", "does not apply"), result.case.id
