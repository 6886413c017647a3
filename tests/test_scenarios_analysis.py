"""What the scenarios make of their records: known answers from made-up lines, gaps, and runs that were cut short."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flashperf import cli
from flashperf.errors import UserError
from flashperf.progress import NullProgress
from flashperf.records import Interval
from flashperf.report import scenarios as render
from flashperf.scenarios import compiling, parallelism, pinning, run, warmup
from flashperf.scenarios.definition import Quantity, Scenario, Table
from flashperf.scenarios.registry import all_scenarios, scenario_named


def jitter(seed: int, count: int = 6) -> np.ndarray:
    """Factors near 1, one per process."""
    return np.exp(np.random.default_rng(seed).normal(0, 0.01, count))


def block(ratio: float, base_s: float = 1e-3) -> dict[str, Any]:
    order = "ABBABAAB"
    wall = [base_s * (ratio if side == "B" else 1.0) for side in order]
    return {"order": order, "wall_s": wall, "cpu_s": wall, "repeated": 0, "kept": 0}


def column(table: Table, title: str) -> list[Any]:
    return [row[table.columns.index(title)] for row in table.rows]


def value(cell: Any) -> float:
    assert isinstance(cell, Quantity)
    return cell.value.value


def warmup_lines(extra_start_s: float, saving_s: float) -> list[dict[str, Any]]:
    """Flash starts slower by ``extra_start_s`` and takes ``saving_s`` less for each later task of 0.1 s."""
    lines = []
    for pair, factor in enumerate(jitter(1, 8)):
        for variant, start, task in (("standard", 0.2, 0.1), ("flash", 0.2 + extra_start_s, 0.1 - saving_s)):
            sample = {"start_s": start * factor, "first_s": 0.3 * factor, "steady_s": [task * factor] * 5}
            lines.append({"kind": "sample", "pair": pair, "variant": variant, **sample})
    return lines


def test_a_slow_start_pays_after_as_many_tasks_as_it_costs() -> None:
    found = warmup.analyse(warmup_lines(0.5, 0.05))
    assert found.totals[0].verdict == "slower"
    assert found.totals[1].ratio.value == pytest.approx(0.5)
    assert "Flash needs 50" in found.sentences[0]
    assert "after 10.0 more tasks" in found.sentences[0]


def test_a_slow_start_with_slower_tasks_never_pays() -> None:
    assert "never makes up" in warmup.analyse(warmup_lines(0.5, -0.05)).sentences[0]
    assert warmup.analyse(warmup_lines(-0.1, 0.05)).sentences[0].startswith("Standard needs 1")


def test_starts_that_do_not_differ_are_not_ranked() -> None:
    lines = warmup_lines(0.0, 0.05)
    for line, factor in zip(lines, jitter(7, len(lines)), strict=True):
        line["start_s"] *= factor
    assert "can't be told" in warmup.analyse(lines).sentences[0]


def test_break_even_has_fiellers_interval() -> None:
    found = warmup.break_even((1.2 * jitter(2), 0.2 * jitter(3)), (0.1 * jitter(4), 0.2 * jitter(5)))
    assert found.low < found.value < found.high
    assert found.value == pytest.approx(10, rel=0.05)


def test_one_pair_of_processes_is_too_little() -> None:
    found = warmup.analyse(warmup_lines(0.5, 0.05)[:3])
    assert not found.totals
    assert "too few" in found.gaps[0]


def pinning_lines(
    ratios: dict[tuple[str, int], float], condition: str = "undisturbed"
) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = [{"kind": "plan", "cores": 2, "pairs": []}]
    for (variant, threads), ratio in ratios.items():
        for worker, factor in enumerate(jitter(threads)):
            where = {"condition": condition, "variant": variant, "threads": threads, "base_threads": 2}
            lines.append({"kind": "block", "worker": worker, "block": block(ratio * factor), **where})
    return lines


def test_policies_and_thread_counts_stand_in_tables_of_their_own() -> None:
    lines = pinning_lines(
        {("static_partition", 2): 1.5, ("pinned_partition", 2): 1.6, ("work_queue", 1): 2.0}
    )
    lines += [{"kind": "gap", "what": "CPU quota", "why": "no control group"}]
    lines += [{"kind": "quota", "cores": 1.0, "throttled": 40, "periods": 50}]
    found = pinning.analyse(lines)
    policies, threads = found.tables
    assert [value(cell) for cell in column(policies, "/ queue")] == pytest.approx([1.6, 1.5], rel=0.02)
    assert column(threads, "variant") == ["1 thread"]
    assert [total.what for total in found.totals] == ["pinned partition / work queue, undisturbed"]
    assert found.totals[0].verdict == "slower"
    assert found.gaps == ("CPU quota: no control group",)
    assert "throttled in 40 of 50 periods" in found.sentences[0]


def test_pairs_of_pinning_leave_out_what_can_not_be_bound() -> None:
    bound = pinning.pairs_for(4, "")
    assert ("pinned_partition", 4, 4) in bound
    assert [threads for variant, threads, _ in bound if variant == "work_queue"] == [1, 2, 8, 16]
    assert not [
        variant for variant, _, _ in pinning.pairs_for(4, "no permission") if variant.startswith("pinned")
    ]
    assert {base for _, _, base in pinning.pairs_for(1, "")} == {2}


def story(mode: str, process: int, first_s: float, later_s: float, compilations: int) -> dict[str, Any]:
    times = [first_s, *[later_s] * 11]
    where = {"mode": mode, "process": process, "series": "same length", "model": "chain"}
    return {"kind": "story", "times_s": times, "steady_s": later_s, "compilations": compilations, **where}


def test_compilations_first_calls_and_later_ones_stand_apart_and_pay_after_some_calls() -> None:
    lines = []
    for n, factor in enumerate(jitter(9, 4)):
        lines.append(story("eager", n, 1e-3 * factor, 1e-3 * factor, 0))
        lines.append(story("static", n, 1.001 * factor, 0.5e-3 * factor, 1))
        lines.append(story("dynamic", n, 1.001 * factor, 2e-3 * factor, 1))
    (table,) = compiling.analyse(lines).tables
    assert column(table, "mode") == ["eager", "static", "dynamic"]
    assert column(table, "compiled") == ["0", "1", "1"]
    assert value(column(table, "first call")[1]) == pytest.approx(1.0, rel=0.02)
    assert value(column(table, "/ eager")[1]) == pytest.approx(0.5, rel=0.02)
    pays = column(table, "pays after calls")
    assert pays[0] == ""
    assert pays[1].startswith(("1,98", "1,99"))  # (1 s - 11 x 0.5 ms) / 0.5 ms
    assert pays[2] == "never"


def test_a_saving_that_may_be_none_is_not_a_break_even() -> None:
    first = np.array([1.0, 1.1, 0.9]), np.array([0.1, 0.1, 0.1])
    assert compiling.pays_after(first, (np.array([1.0, 2.0, 1.5]), np.array([1.2, 1.9, 1.5]))) == "can't tell"


def test_a_break_even_without_a_lower_end_is_given_roughly() -> None:
    first = np.array([1.0, 3.0]), np.array([0.1, 0.1])
    later = np.array([1.0e-3, 1.1e-3]), np.array([2.0e-3, 2.1e-3])
    assert compiling.pays_after(first, later) == "about 2,000"


def test_efficiency_is_one_where_two_ranks_are_twice_as_fast() -> None:
    found = parallelism.efficiency([math.log(0.5)] * 4)
    assert found.value == pytest.approx(1.0)
    assert parallelism.efficiency([0.0, 0.0]).value == pytest.approx(0.5)


def test_parallel_groups_give_ratio_efficiency_and_talk() -> None:
    lines = [
        {"kind": "times", "group": group, "length": 1024, "strategy": strategy, "split_s": split * factor,
         "alone_s": 1.0, "split_talking_s": 0.1 * split * factor, "alone_talking_s": 0.0}
        for group, factor in enumerate(jitter(11, 5))
        for strategy, split in (("data", 0.55), ("tensor", 0.8))
    ]  # fmt: skip
    found = parallelism.analyse(lines)
    (table,) = found.tables
    assert column(table, "split by") == ["data", "tensor"]
    assert [value(cell) for cell in column(table, "efficiency")] == pytest.approx([0.91, 0.625], rel=0.02)
    assert value(column(table, "in collectives")[0]) == pytest.approx(0.1)
    assert [total.verdict for total in found.totals] == ["faster", "faster"]
    assert "never been run" in found.gaps[0]


def recorded(
    monkeypatch: pytest.MonkeyPatch, folder: Path, lines: Sequence[dict[str, Any]], raises: Any = None
) -> Path:
    """A record of warmup with the lines; ``raises`` is what measuring ends with."""

    def measure(recorder: Any) -> None:
        for line in lines:
            recorder.write(line["kind"], **{name: item for name, item in line.items() if name != "kind"})
        if raises is not None:
            raise raises

    scripted = Scenario("warmup", "?", ("A18",), measure, warmup.analyse)
    return run.run_scenario(scripted, folder, 60.0, 0, NullProgress())


def test_a_record_is_read_back_and_printed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = recorded(monkeypatch, tmp_path, warmup_lines(0.5, 0.05))
    report = run.read_report(path)
    assert (report.stopped, report.scenario.name) == ("done", "warmup")
    assert cli.main(["scenario", "warmup", "--replay", str(path)]) == 0
    out = capsys.readouterr().out
    assert "until the first answer, Flash / Standard" in out
    assert all(len(line) <= 100 and line == line.rstrip() for line in out.splitlines())
    assert cli.main(["scenario", "--replay", str(path), "--markdown"]) == 0
    assert "| stage | Standard | Flash | ratio |" in capsys.readouterr().out
    assert cli.main(["scenario", "--replay", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["claims"] == ["A18", "B18"]
    assert cli.main(["scenario", "pinning", "--replay", str(path)]) == 2
    assert "a record of scenario warmup, not of pinning" in capsys.readouterr().err


def test_what_breaks_keeps_what_was_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lines = warmup_lines(0.5, 0.05)
    path = recorded(monkeypatch, tmp_path / "stopped", lines, KeyboardInterrupt())
    assert run.read_report(path).stopped == "interrupted"
    assert run.read_report(path).findings.totals
    with pytest.raises(UserError, match="disk"):
        recorded(monkeypatch, tmp_path / "failed", lines, UserError("the disk is full"))
    report = run.read_report(tmp_path / "failed" / "record.jsonl")
    assert report.stopped == "failed: the disk is full"
    assert report.findings.totals


def test_a_killed_run_has_no_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = recorded(monkeypatch, tmp_path, warmup_lines(0.5, 0.05))
    path.write_text("\n".join(path.read_text().splitlines()[:-1]) + "\n")
    report = run.read_report(path)
    assert report.stopped == "killed"
    assert "ended early (killed)" in render.footer(report)
    assert cli.main(["scenario", "--replay", str(path)]) == 1


def test_a_run_without_enough_for_a_table_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = recorded(monkeypatch, tmp_path, warmup_lines(0.5, 0.05)[:2])
    assert cli.main(["scenario", "--replay", str(path)]) == 0
    assert "Too little was measured" in capsys.readouterr().out


def test_the_command_lists_and_refuses(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert cli.main(["scenario"]) == 0
    listed = capsys.readouterr().out
    assert all(f"{found.name}:" in listed for found in all_scenarios())
    assert cli.main(["scenario", "pining"]) == 2
    assert "did you mean pinning" in capsys.readouterr().err
    out = str(tmp_path / "out")
    assert cli.main(["scenario", "pinning", "--budget", "-3", "--out", out]) == 2
    assert cli.main(["scenario", "pinning", "--seed", "-3", "--out", out]) == 2
    assert not (tmp_path / "out").exists()
    other = tmp_path / "other.jsonl"
    other.write_text("{}\n")
    assert cli.main(["scenario", "--replay", str(other)]) == 2


def test_a_scenario_that_can_not_run_here_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from flashperf.cases.guards import Machine

    bare = Machine(torch="", isa=frozenset(), cores=1, compiler=False, cuda=False)
    monkeypatch.setattr(run, "this_machine", lambda: bare)
    with pytest.raises(UserError, match="scenario compile needs torch"):
        run.run_scenario(scenario_named("compile"), tmp_path, 60.0, 0, NullProgress())
    assert not list(tmp_path.iterdir())


def test_cells_read_at_a_glance() -> None:
    assert render.cell(Quantity(Interval(1.5e-3, 1.4e-3, 1.6e-3), "s")) == "1.50 ms ±7 %"
    assert render.cell(Quantity(Interval(0.5, 0.45, 0.55), "fraction")) == "50 % ±5"
    assert render.cell(Quantity(Interval(2.0, 1.9, 2.1), "ratio")) == "2.00 [1.90 2.10]"
    assert render.cell(Quantity(Interval(1.5e-3, -1e-3, 4e-3), "s")) == "~1.50 ms"
    assert render.cell("unresolved") == "can't tell"


def test_a_page_shows_totals_tables_and_where_it_ran(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from flashperf.report.run_sections import report_page

    path = recorded(monkeypatch, tmp_path, warmup_lines(0.5, 0.05))
    page = report_page([path])
    report = run.read_report(path)
    for said in ("Scenario warmup", report.findings.tables[0].title, report.findings.totals[0].what):
        assert said in page
    assert report.environment.device in page
    assert "Scenario warmup · Scenario warmup" not in page


@pytest.mark.parametrize("budget", ["0", "-1", "nan"])
def test_a_budget_that_is_none_is_refused(budget: str, tmp_path: Path, capsys: Any) -> None:
    command = ["scenario", "warmup", "--quiet", "--out", str(tmp_path / "no")]
    assert cli.main([*command, "--budget", budget]) == 2
    assert "must be a positive number of seconds" in capsys.readouterr().err
    assert not (tmp_path / "no").exists()
