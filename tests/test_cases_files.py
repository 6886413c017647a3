"""Definitions in files of their own: found, refused with one line, measured without torch, failing without harm."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scripted_cases import ScriptedWorker, measured

from flashperf import cli
from flashperf.cases import guards, registry, subject
from flashperf.cases.definition import Built, OpenCase, Proof
from flashperf.cases.evidence import objection, seen
from flashperf.cases.rules import MECHANISMS
from flashperf.errors import UserError
from flashperf.report import cases as render
from flashperf.workers import WorkerError

ROOT = Path(__file__).resolve().parent.parent
INTEGERS = ROOT / "docs" / "examples" / "case_integer_products.py"
JAGGED = ROOT / "docs" / "examples" / "case_jagged_batch.py"


def written(folder: Path, ending: str = "", missing: str = "numpy") -> str:
    """The example with something added at its end, or with another import; its path."""
    path = folder / "case.py"
    path.write_text(INTEGERS.read_text().replace("import numpy", f"import {missing}") + f"\n{ending}\n")
    return str(path)


def changed(change: str) -> str:
    """A line that replaces fields of the example's case."""
    return f"from dataclasses import replace\nCASE = replace(CASE, {change})"


def test_a_case_in_a_file_is_found_and_knows_its_file() -> None:
    case = registry.case_named(str(INTEGERS))
    assert (case.id, case.file, case.reference) == ("C1", str(INTEGERS), str(INTEGERS))
    assert registry.case_named("A4").reference == "A4"
    assert registry.distinct([case, registry.case_named("A4"), case]) == [case, registry.case_named("A4")]
    with pytest.raises(UserError, match="two cases have the id C1"):
        registry.distinct([case, replace(case, file="/elsewhere.py")])


@pytest.mark.parametrize(
    "ending, message",
    [
        ("CASE = (", r"case\.py, line \d+: SyntaxError: '\(' was never closed$"),
        ("CASE = 1", "has no CASE"),
        (changed("headline=9"), "there is no point 9"),
        (changed("id='A4'"), "one of the program's own cases"),
        (
            changed("expectation=Expectation('slower', 'tranfer')"),
            "mechanism 'tranfer': did you mean transfer",
        ),
        (changed("points=(Point({'n': 4}, 4, paths=('int23',)),), headline=0"), "n=4 names the path int23"),
        (
            changed("points=(Point({'n': 4}, 4, paths=('cast_back',)),), headline=0"),
            "int32 is not measured at",
        ),
    ],
)
def test_a_definition_that_is_wrong_is_refused_with_one_line(
    tmp_path: Path, ending: str, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        registry.case_named(written(tmp_path, ending))


def test_a_definition_that_needs_what_is_not_there_says_in_which_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"case\.py, line \d+: ModuleNotFoundError: .*no_such_module"):
        registry.case_named(written(tmp_path, missing="no_such_module"))


def test_a_file_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["cases", "no/such/case.py"]) == 2
    assert "there is no file" in capsys.readouterr().err


def test_a_record_of_a_file_is_diagnosed_again_by_id_or_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report, _ = measured(monkeypatch, tmp_path, [str(INTEGERS), "A4"])
    assert [result.case.id for result in report.results] == ["C1", "A4"]
    record = str(tmp_path / "record.jsonl")
    for name in ("c1", "integer-products"):
        assert cli.main(["cases", name, "--replay", record, "--json"]) == 0
        assert [case["id"] for case in json.loads(capsys.readouterr().out)["cases"]] == ["C1"]
    monkeypatch.chdir(tmp_path)
    text = (tmp_path / "record.jsonl").read_text()
    assert cli.main(["cases", "--replay", str(ROOT / "results" / "xeon-amx" / "cases-examples.jsonl")]) == 0
    assert (
        "C2 jagged-batch" in capsys.readouterr().out
    )  # noted from the root of the project, found from elsewhere
    (tmp_path / "gone.jsonl").write_text(text.replace("case_integer_products", "case_gone"))
    assert cli.main(["cases", "--replay", "gone.jsonl"]) == 2
    assert "there is no file" in capsys.readouterr().err
    assert cli.main(["cases", str(JAGGED), "--list"]) == 0
    assert capsys.readouterr().out.startswith("C2 jagged-batch")


def test_a_pair_that_fails_is_left_out_and_the_others_are_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    report, _ = measured(monkeypatch, tmp_path, ["A4", "A5"], failing={"A4": ("prepare buckets",)})
    first, second = report.results
    assert first.measured is not None
    assert set(first.measured.points[0].pairs) == {"padded"}
    assert first.failures == ("buckets against one_by_one at requests=16, longest=192: buckets is wrong",)
    assert "Failed: buckets against one_by_one" in " ".join(render.words(first))
    assert second.outcome.state == "as reported"
    assert report.failed


def test_a_worker_that_is_killed_leaves_what_was_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    block, calls = ScriptedWorker._block, [0]

    def killed(self: ScriptedWorker, **arguments: Any) -> Any:
        calls[0] += 1
        if calls[0] == 40:
            raise WorkerError("worker 5 was ended by signal 9: USDT:2026-12-01 profiler_stop")
        return block(self, **arguments)

    monkeypatch.setattr(ScriptedWorker, "_block", killed)
    report, workers = measured(monkeypatch, tmp_path, ["A4", "A5"])
    first, second = report.results
    assert first.failures == ("worker 5 was ended by signal 9",)
    assert (first.outcome.state, second.outcome.state) == ("as reported", "as reported")
    assert report.failed
    assert all(worker.stopped for worker in workers)


def test_nothing_of_a_case_is_timed_if_its_headline_pair_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    report, _ = measured(monkeypatch, tmp_path, ["A4"], failing={"A4": ("prepare padded",)})
    (result,) = report.results
    assert (result.measured, result.outcome.state) == (None, "not measured")
    assert result.outcome.why == "padded against one_by_one at requests=16, longest=192: padded is wrong"
    assert '"kind": "block"' not in (tmp_path / "record.jsonl").read_text()


@pytest.mark.parametrize("wrong", [lambda _: True, lambda: "", lambda machine: machine.nothing])
@pytest.mark.parametrize("where", ["requires", "where"])
def test_a_wrong_guard_fails_its_case_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wrong: guards.Guard, where: str
) -> None:
    case = registry.case_named("A5")
    guarded = (
        replace(case, requires=(wrong,))
        if where == "requires"
        else replace(case, expectation=replace(case.expectation, where=(wrong,)))
    )
    report, _ = measured(monkeypatch, tmp_path, [guarded, "A4"])
    first, second = report.results
    assert first.failures[0].startswith("its guard <lambda> ")
    assert (first.outcome.state, second.outcome.state) == ("not measured", "as reported")
    assert report.failed


def test_what_is_missing_is_remembered_by_the_record(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    case = replace(registry.case_named("A5"), requires=(guards.package("no_such_package"),))
    report, _ = measured(monkeypatch, tmp_path, [case])
    (result,) = report.results
    assert result.outcome.why == "needs the package no_such_package, which is not installed"
    assert not report.failed
    assert guards.package("json")(guards.this_machine()) == ""


def test_the_result_proves_which_arithmetic_ran() -> None:
    whole = np.ones(3, np.int32)
    assert objection(Proof(result="int32"), {}, None, whole) == ""
    assert objection(Proof(result="int32"), {}, None, [whole.astype(float)]) == (
        "the result is of dtype float64, not int32"
    )
    assert objection(Proof(result="int32"), {}, None, None) == "the result is of dtype none, not int32"
    built = Built(lambda: whole, facts={"work": 3}, proof=Proof(result="int32"))
    assert seen(built, with_torch=False) == ({"work": 3}, "")
    facts, why = seen(replace(built, proof=Proof(ops=("aten::mm",))), with_torch=False)
    assert "torch_installed is not among" in why
    assert facts == {"work": 3}


def test_a_case_that_does_not_need_torch_is_measured_without_it() -> None:
    code = (
        "import sys\n"
        "from flashperf.cases.subject import CaseSubject\n"
        f"held, path = CaseSubject(seed=1), {str(INTEGERS)!r}\n"
        "for name in ('int32', 'cast_back'):\n"
        "    sides = held.prepare(path, 1, name, check=True)['sides']\n"
        "    assert len(held.block(path, 1, name, seed=1)['wall_s']) == 8\n"
        "print(sides[1]['facts'], 'torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "{'operand_bits': 32, 'casts': 1} False"


@pytest.mark.slow
def test_the_jagged_batch_is_checked_and_seen_to_be_jagged(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="measures torch")
    case: OpenCase = registry.case_named(str(JAGGED))
    if why_not := guards.first_reason(case.requires, guards.this_machine()):
        pytest.skip(why_not)
    monkeypatch.setattr(subject, "_LEAST_SAMPLE_S", 0.0)
    held = subject.CaseSubject(seed=3)
    sides = held.prepare(case.reference, 0, "jagged", check=True)["sides"]
    assert sides[1]["facts"]["work"] < sides[0]["facts"]["work"]


def test_the_page_lists_everything_that_a_rule_reads() -> None:
    rules = (ROOT / "flashperf" / "cases" / "rules.py").read_text()
    page = (ROOT / "docs" / "cases.md").read_text()
    read = {
        name
        for found in re.findall(r'fact\("(\w+)"\)|parts_s\.get\("(\w+)"|other\("(\w+)"\)', rules)
        for name in found
    }
    read |= {"observed", "copied_bytes", "threads"}  # read in a loop
    assert len(read - {""}) >= 18
    assert [name for name in sorted(read - {""}) if f"`{name}`" not in page] == []
    assert [name for name in MECHANISMS if f"| {name} |" not in page] == []


def test_the_page_shows_the_example_as_it_is() -> None:
    page = (ROOT / "docs" / "cases.md").read_text()
    shown = page[page.index("CASE = OpenCase(") :].split("```")[0]
    case = registry.case_named(str(INTEGERS))
    for name in ("id", "name", "source", "axis", "baseline", "optimised"):
        assert f'{name}="{getattr(case, name)}"' in shown


def test_counts_may_be_numpy_numbers() -> None:
    facts, _ = seen(Built(lambda: None, facts={"work": np.int64(3), "useful": 2}, proof=None))
    assert json.dumps(facts) == '{"work": 3, "useful": 2}'


def test_a_fresh_case_that_does_not_tell_its_story_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    case = replace(registry.case_named(str(INTEGERS)), fresh=True)
    for told in (None, {"times_s": [1.0]}):
        silent = replace(case, make=lambda *_, told=told: Built(lambda: told))
        monkeypatch.setattr(subject, "case_named", lambda _, silent=silent: silent)
        with pytest.raises(subject.WrongPathError, match="does not return compilations, steady_s"):
            subject.CaseSubject(seed=0).fresh("C1", 0, "int32")
