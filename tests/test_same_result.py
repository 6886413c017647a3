"""A user's mixtures are timed only if they compute what Standard computes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from flashperf.errors import UserError
from flashperf.explain.analysis import analyse
from flashperf.explain.factory import FactorySubject
from flashperf.explain.own import FactoryPhases
from flashperf.explain.same_result import SameResult
from flashperf.progress import NullProgress
from flashperf.store import read_records
from flashperf.workers import NoAnswerError

RECORD = Path(__file__).parent.parent / "results" / "xeon-amx" / "explain-b.jsonl"

FACTORY = """
import numpy as np

x = np.linspace(-1, 1, 600).reshape(20, 30)

def factory(form="whole", bias="there", kind="f64", ends="well"):
    calls = []
    def run():
        calls.append(1)
        if ends == "late" and len(calls) > 1:
            raise RuntimeError("only once")
        y = x.astype({"f64": "f8", "f16": "f2"}[kind]) * 2 + (1 if bias == "there" else 0)
        return {"parts": [row for row in y]} if form == "parts" else y
    return run

def silent(n):
    def run():
        return sum(range(int(n)))
    return run
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "own.py"
    path.write_text(FACTORY)
    return path


def subject(file: Path) -> FactorySubject:
    return FactorySubject(f"{file}:factory", {"form": "whole"})


@pytest.mark.parametrize("levels", [{"form": "parts"}, {"form": "whole", "kind": "f16"}])
def test_another_form_and_lower_precision_are_the_same_result(file: Path, levels: dict[str, str]) -> None:
    ours = subject(file)
    ours.prepare(levels)
    assert ours.run(levels)["seconds"] > 0
    assert not any("not compared" in remark for remark in ours.remarks())


def test_a_wrong_mixture_is_named_and_not_timed(file: Path) -> None:
    ours, wrong = subject(file), {"form": "parts", "bias": "missing"}
    with pytest.raises(
        UserError, match=r"result for form=parts, bias=missing differs from Standard's by \d+"
    ):
        ours.prepare(wrong)
    with pytest.raises(KeyError):
        ours.run(wrong)


def test_an_error_in_a_timed_run_names_its_mixture(file: Path) -> None:
    ours, levels = subject(file), {"ends": "late"}
    ours.prepare(levels)
    with pytest.raises(UserError, match="a timed run failed for ends=late: RuntimeError: only once"):
        ours.run(levels)


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (np.ones(3), "has 3 values, Standard's 4"),
        (None, "has 0 values, Standard's 4"),
        (np.array([1, 1, 1, np.nan]), "holds NaN"),
        ([np.ones(2), np.array([1.0, 1.3])], "by 15.0% of its norm .limit 10%"),
    ],
)
def test_how_a_result_is_wrong_is_said(result: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        SameResult(np.ones(4, np.float32)).check(result, "a=b")


def test_results_without_a_floating_array_are_timed_and_a_note_says_so(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    levels = {"n": "2000"}
    silent = FactorySubject(f"{file}:silent", levels)
    silent.prepare(levels)
    silent.prepare({"n": "6000"})
    assert len(silent.remarks()) == 1
    silent.run(levels)
    monkeypatch.setattr("flashperf.explain.factory.SHORT_S", 10.0)
    assert "is timed by itself" in silent.remarks()[1]

    common = {"budget_s": 9.0, "seed": 0, "progress": NullProgress(), "began": None, "out": tmp_path / "out"}
    phases = FactoryPhases(f"{file}:silent", levels, {"n": "6000"}, **common)
    worker = SimpleNamespace(call=lambda method: getattr(silent, method)())
    with phases.writer:
        phases.isolate(SimpleNamespace(workers=[worker]))  # type: ignore[arg-type]
    note, _ = read_records(tmp_path / "out" / "record.jsonl").of("note")
    assert note["text"] == "results were not compared: the callable of Standard returns no floating array"


def test_a_note_of_the_record_is_one_of_the_explanation() -> None:
    lines = [dict(line) for line in read_records(RECORD).lines]
    found = analyse([*lines[:-1], {"kind": "note", "text": "mind this"}, lines[-1]])
    assert "mind this" in found.notes


def test_a_call_that_hangs_or_is_too_slow_is_said_to_be_that(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hang(phases: FactoryPhases) -> str:
        raise NoAnswerError("worker 4 gave no answer within 12 s")

    monkeypatch.setattr(FactoryPhases, "_measure_active", hang)
    common = {"budget_s": 9.0, "seed": 0, "progress": NullProgress(), "began": None, "out": tmp_path / "out"}
    phases = FactoryPhases(f"{file}:silent", {"n": "1"}, {"n": "2"}, **common)
    with pytest.raises(UserError, match="within 12 s: a call hangs, or is too slow for the budget of 9 s"):
        phases.measure()
