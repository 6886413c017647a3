"""Advice: what flashperf advise writes, a dispatcher reads; crossovers themselves are samples here."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from test_crossover import NONE, ONE, TWICE, UNKNOWN, result_of

import flashperf
from flashperf import advice as advice_module
from flashperf import cli, registry
from flashperf.advice import Rule
from flashperf.crossover import advise as advise_module
from flashperf.crossover import subject_of
from flashperf.crossover.advise import Advised, advise, again, rule_of, subjects, write_advice
from flashperf.errors import UserError
from flashperf.workers import WorkerError

RECORD = Path(__file__).parents[1] / "results" / "xeon-amx" / "crossover-precision.jsonl"
RULE = Rule(
    "fusion",
    "cpu",
    "f32",
    {"op": "softmax", "cols": 1024},
    "rows",
    ("m",),
    1,
    4096,
    (10, 520),
    ("a", "b", "a"),
    True,
)


def table(tmp_path: Path, *rules: Rule) -> flashperf.advice.AdviceTable:  # type: ignore[name-defined]
    path = write_advice([Advised("x", rule, result_of(ONE)) for rule in rules], tmp_path / "advice.json")
    return flashperf.advice(path, any_machine=True)


def test_what_is_written_is_read_back_and_chooses(tmp_path: Path) -> None:
    read = table(tmp_path, RULE)
    assert read.rules == (RULE,)
    assert read.device.startswith("Intel")
    chosen = [read.choose("fusion", rows=rows) for rows in (1, 9, 10, 519, 520, 10**9)]
    assert chosen == ["a", "a", "b", "b", "a", "a"]
    assert read.choose("fusion", m=100) == "b"
    assert read.choose("fusion", rows=100, op="softmax", cols=77, dtype="f32", backend="cpu") == "b"


def test_the_rule_of_the_right_word_is_taken(tmp_path: Path) -> None:
    other = Rule("fusion", "cpu", "f32", {"op": "swiglu"}, "rows", ("rows",), 1, 9, (), ("c",), True)
    read = table(tmp_path, RULE, other)
    assert read.choose("fusion", rows=100, op="swiglu") == "c"
    assert read.choose("fusion", rows=100) == "b"


@pytest.mark.parametrize(
    ("mechanism", "sizes", "said"),
    [
        ("fusoin", {"rows": 1}, "did you mean fusion"),
        ("fusion", {"rows": 1, "op": "gelu"}, "no advice on fusion for"),
        ("fusion", {"cols": 1}, "there is: cpu f32"),
        ("fusion", {}, "for no size; there is: .* by rows or m"),
        ("fusion", {"rows": 1, "opp": "softmax"}, "no advice on fusion for rows=1, opp=softmax"),
        ("fusion", {"rows": "300"}, "rows is a whole number, not '300'"),
        ("fusion", {"rows": 2.5}, "rows is a whole number, not 2.5"),
        ("fusion", {"rows": 1, "dtype": "bf16"}, "no advice on fusion"),
    ],
)
def test_what_there_is_no_advice_on_is_an_error(
    tmp_path: Path, mechanism: str, sizes: dict[str, Any], said: str
) -> None:
    with pytest.raises(UserError, match=said):
        table(tmp_path, RULE).choose(mechanism, **sizes)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"program": "other"}, "is no advice"),
        ({"schema": 9}, "has schema 9; this flashperf reads 1"),
        ({"rules": [{}]}, "is damaged: KeyError"),
        ({"rules": 3}, "is damaged: TypeError"),
    ],
)
def test_a_damaged_file_is_one_clear_error(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    table(tmp_path, RULE)
    path = tmp_path / "advice.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(UserError, match=said):
        flashperf.advice(path)


def test_thresholds_that_divide_nothing_are_refused(tmp_path: Path) -> None:
    table(tmp_path, RULE)
    path = tmp_path / "advice.json"
    for wrong in ([10], [520, 10]):
        data = json.loads(path.read_text())
        data["rules"][0]["thresholds"] = wrong
        (tmp_path / "wrong.json").write_text(json.dumps(data))
        with pytest.raises(UserError, match="don't divide"):
            flashperf.advice(tmp_path / "wrong.json")
    with pytest.raises(UserError, match="can't read"):
        flashperf.advice(tmp_path / "missing.json")
    (tmp_path / "text.json").write_text("no")
    with pytest.raises(UserError, match="is no JSON"):
        flashperf.advice(tmp_path / "text.json")


def test_every_answer_becomes_a_rule() -> None:
    softmax = subject_of("fusion", sizes={"op": "softmax"})
    made = {name: rule_of(softmax, result_of(found)) for name, found in FOUND.items()}
    assert (made["one"].thresholds, made["one"].use) == ((212,), ("split", "fused"))
    assert (made["twice"].thresholds, made["twice"].use) == ((10, 520), ("fused", "split", "fused"))
    assert (made["none"].thresholds, made["none"].use) == ((), ("split",))
    assert (made["unknown"].decided, made["unknown"].use) == (True, ("fused",))
    assert made["unknown"].words == "fused; can't tell from 10 to 1000"
    assert (made["nothing"].decided, made["nothing"].use) == (False, ("fused",))
    assert made["one"].fixed["op"] == "softmax"
    assert {rule.note for rule in made.values()} == {""}
    cut = rule_of(softmax, dataclasses.replace(result_of(ONE), asked=(1, 4096)))
    assert cut.sentence == "split below 190, fused above 240, either between; cut: no time for 1001 to 4096"


NOTHING = dataclasses.replace(UNKNOWN, faster="")
FOUND = {"one": ONE, "twice": TWICE, "none": NONE, "unknown": UNKNOWN, "nothing": NOTHING}


def test_every_mechanism_and_every_word_has_a_line() -> None:
    found = list(subjects(registry.names(), "cpu"))
    assert {subject.mechanism for subject in found} == set(registry.names())
    assert len({subject.title for subject in found}) == len(found) >= len(registry.names()) + 3
    assert [(s.a, s.b) for s in found if s.mechanism == "batching"] == [("packed", "padded")]


def test_the_command_prints_the_table_and_writes_the_file(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares: list[float] = []

    def one(subject: Any, budget_s: float, *rest: Any) -> Any:
        shares.append(budget_s)
        if subject.fixed["op"] == "swiglu":
            raise UserError("not even 3 sizes fit into 5 s")
        return result_of(NOTHING if subject.fixed["op"] == "softmax" else ONE)

    monkeypatch.setattr(advise_module, "_one", one)
    assert cli.main(["advise", "fusion", "--budget", "40", "--out", str(tmp_path), "--quiet"]) == 0
    said = capsys.readouterr().out
    assert "split below 190, fused above 240" in " ".join(said.split())
    assert "not measured: not even 3 sizes fit" in " ".join(said.split())
    assert "can't tell: fused" in " ".join(said.split())
    assert shares[0] == pytest.approx(10, abs=0.5)
    assert all(len(line) <= 80 for line in said.splitlines() if not line.startswith("wrote"))
    assert cli.main(["advise", "--from", str(tmp_path / "advice.json")]) == 0
    assert said.startswith(capsys.readouterr().out)  # and then where it was written
    read = flashperf.advice(tmp_path / "advice.json", any_machine=True)
    assert read.choose("fusion", rows=300, op="bias_gelu") == "fused"
    assert not read.rule("fusion", rows=1, op="softmax").decided


def test_an_interrupt_keeps_what_was_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def one(subject: Any, *rest: Any) -> Any:
        if subject.fixed["op"] == "softmax":
            raise KeyboardInterrupt
        return result_of(ONE)

    monkeypatch.setattr(advise_module, "_one", one)
    assert cli.main(["advise", "fusion", "--out", str(tmp_path), "--quiet"]) == 130
    assert "not measured: interrupted" in capsys.readouterr().out
    read = flashperf.advice(tmp_path / "advice.json", any_machine=True)
    assert read.rules
    assert ("fusion softmax", "interrupted") in read.left_out
    assert len(read.rules) + len(read.left_out) == 4


def test_a_process_that_dies_costs_its_own_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def one(subject: Any, *rest: Any) -> Any:
        if subject.fixed["op"] == "softmax":
            raise WorkerError("worker 3 was ended by signal 9: it said nothing")
        return result_of(ONE)

    monkeypatch.setattr(advise_module, "_one", one)
    assert cli.main(["advise", "fusion", "--out", str(tmp_path), "--quiet"]) == 1
    assert "signal 9" in " ".join(capsys.readouterr().out.split())
    assert len(flashperf.advice(tmp_path / "advice.json", any_machine=True).rules) == 3


def test_nothing_to_say_is_exit_code_3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(advise_module, "_one", lambda *_: result_of(NOTHING))
    assert cli.main(["advise", "fusion", "--out", str(tmp_path), "--quiet"]) == 3
    assert cli.main(["advise", "--backend", "cuda"]) == 2
    assert "on the cpu backend so far" in capsys.readouterr().err


def test_reading_advice_needs_the_standard_library_only(tmp_path: Path) -> None:
    table(tmp_path, RULE)
    code = (
        "import sys, flashperf\n"
        f"table = flashperf.advice({str(tmp_path / 'advice.json')!r}, any_machine=True)\n"
        "print(table.choose('fusion', rows=300))\n"
        "assert not {'numpy', 'scipy', 'torch'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("b\n", 0), done.stderr


def test_advice_of_another_processor_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = table(tmp_path, RULE).device
    monkeypatch.setattr(advice_module, "cpu_model", lambda: device)
    assert flashperf.advice(tmp_path / "advice.json").choose("fusion", rows=300) == "b"
    monkeypatch.setattr(advice_module, "cpu_model", lambda: "Another CPU")
    with pytest.raises(UserError, match=r"measured on Intel.*this is Another CPU: run flashperf advise here"):
        flashperf.advice(tmp_path / "advice.json")
    assert cli.main(["advise", "--from", str(tmp_path / "advice.json")]) == 0


def test_every_line_is_told_when_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, str]] = []
    fractions: list[tuple[float, float]] = []

    class Sink:
        def phase(self, name: str, detail: str) -> None:
            told.append((name, detail))

        def update(self, fraction: float, seconds_left: float, lines: Any) -> None:
            fractions.append((fraction, seconds_left))

    def one(subject: Any, share_s: float, high: Any, record: Any, progress: Any) -> Any:
        progress.phase("crossover", "not told")
        progress.update(0.5, 3.0, [])
        return result_of(NONE)

    monkeypatch.setattr(advise_module, "_one", one)
    counts: list[int] = []
    advise(["fusion"], budget_s=40, progress=Sink(), finished=lambda found: counts.append(len(found)))
    assert counts == [1, 2, 3, 4]
    assert told[:2] == [
        ("advise", "1 of 4, fusion bias_gelu: fused or split?"),
        ("advise", "fusion bias_gelu: split everywhere"),
    ]
    assert [fraction for fraction, _ in fractions] == [0.125, 0.375, 0.625, 0.875]
    assert fractions[0][1] == pytest.approx(3 + 3 * 10, abs=1)
    assert fractions[-1][1] == 3


def test_records_of_a_folder_give_the_table_again(tmp_path: Path, capsys: Any) -> None:
    shutil.copy(RECORD, tmp_path / "crossover-precision.jsonl")
    (tmp_path / "crossover-fusion-softmax.jsonl").write_text("{}\n")
    precision, broken = sorted(again(tmp_path), key=lambda line: line.rule is None)
    assert precision.rule is not None
    assert precision.rule.use[0] == "f32"
    assert (precision.rule.keys, broken.title) == (("m",), "fusion softmax")
    assert cli.main(["advise", "--from", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert precision.rule.words in " ".join(said.split())
    assert flashperf.advice(tmp_path / "advice.json", any_machine=True).rules == (precision.rule,)
    (tmp_path / "empty").mkdir()
    assert cli.main(["advise", "--from", str(tmp_path / "empty")]) == 2
    assert "has no crossover-*.jsonl" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--budget", "0"], "the budget is 0 s, must be positive"),
        (["--budget", "nan"], "the budget is nan s, must be positive"),
        (["--high", "1"], "2 or more, not 1"),
    ],
)
def test_bad_numbers_are_refused_before_anything_is_measured(
    arguments: list[str], said: str, capsys: Any
) -> None:
    assert cli.main(["advise", "fusion", *arguments]) == 2
    assert said in capsys.readouterr().err
