"""Advice: what flashperf advise writes, a dispatcher reads; crossovers themselves are samples here."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from test_crossover import NONE, ONE, TWICE, UNKNOWN, result_of

import flashperf
from flashperf import cli, registry
from flashperf.advice import Rule
from flashperf.crossover import advise as advise_module
from flashperf.crossover.advise import Advised, rule_of, subjects, write_advice
from flashperf.errors import UserError

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
    return flashperf.advice(path)


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
    fusion = registry.mechanism("fusion")
    words: dict[str, int | str] = {"op": "softmax"}
    made = {name: rule_of(fusion, words, result_of(found), "cpu") for name, found in FOUND.items()}
    assert (made["one"].thresholds, made["one"].use) == ((212,), ("split", "fused"))
    assert (made["twice"].thresholds, made["twice"].use) == ((10, 520), ("fused", "split", "fused"))
    assert (made["none"].thresholds, made["none"].use) == ((), ("split",))
    assert (made["unknown"].decided, made["unknown"].use) == (True, ("fused",))
    assert made["unknown"].words == "fused; can't tell from 10 to 1000"
    assert (made["nothing"].decided, made["nothing"].use) == (False, ("fused",))
    assert made["one"].fixed["op"] == "softmax"


NOTHING = dataclasses.replace(UNKNOWN, faster="")
FOUND = {"one": ONE, "twice": TWICE, "none": NONE, "unknown": UNKNOWN, "nothing": NOTHING}


def test_every_mechanism_and_every_word_has_a_line() -> None:
    lines = [(mechanism.name, words) for mechanism, words in subjects(registry.names(), "cpu")]
    assert {name for name, _ in lines} == set(registry.names())
    assert len([words for name, words in lines if name == "fusion"]) == 4


def test_the_command_prints_the_table_and_writes_the_file(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares: list[float] = []

    def one(mechanism: Any, words: Any, backend: str, budget_s: float, *rest: Any) -> Any:
        shares.append(budget_s)
        if words.get("op") == "swiglu":
            raise UserError("not even 3 sizes fit into 5 s")
        return result_of(NOTHING if words.get("op") == "softmax" else ONE)

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
    read = flashperf.advice(tmp_path / "advice.json")
    assert read.choose("fusion", rows=300, op="bias_gelu") == "fused"
    assert not read.rule("fusion", rows=1, op="softmax").decided


def test_an_interrupt_keeps_what_was_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def one(mechanism: Any, words: Any, *rest: Any) -> Any:
        if words.get("op") == "softmax":
            raise KeyboardInterrupt
        return result_of(ONE)

    monkeypatch.setattr(advise_module, "_one", one)
    assert cli.main(["advise", "fusion", "--out", str(tmp_path), "--quiet"]) == 130
    assert "not measured: interrupted" in capsys.readouterr().out
    read = flashperf.advice(tmp_path / "advice.json")
    assert read.rules
    assert ("fusion softmax", "interrupted") in read.left_out
    assert len(read.rules) + len(read.left_out) == 4


def test_nothing_to_say_is_exit_code_3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(advise_module, "_one", lambda *_: result_of(NOTHING))
    assert cli.main(["advise", "fusion", "--out", str(tmp_path), "--quiet"]) == 3
    assert cli.main(["advise", "--backend", "cuda"]) == 2
    assert "on the cpu backend so far" in capsys.readouterr().err


def test_reading_advice_needs_the_standard_library_only(tmp_path: Path) -> None:
    table(tmp_path, RULE)
    code = (
        "import sys, flashperf\n"
        f"print(flashperf.advice({str(tmp_path / 'advice.json')!r}).choose('fusion', rows=300))\n"
        "assert not {'numpy', 'scipy', 'torch'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("b\n", 0), done.stderr
