"""The pages on rooflines and crossovers: their code runs, their names are those of the program."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from flashperf import cli, native
from flashperf.crossover.axes import AXES
from flashperf.processor import cpu_model

ROOT = Path(__file__).resolve().parent.parent
ROOFLINE = (ROOT / "docs" / "roofline.md").read_text()
CROSSOVER = (ROOT / "docs" / "crossover.md").read_text()


def blocks(text: str, kind: str) -> list[str]:
    """The fenced blocks of a kind."""
    return re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL)


def run(code: str) -> str:
    """Standard output of a fresh interpreter in the checkout."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_code_of_the_roofline_page_runs() -> None:
    (code,) = blocks(ROOFLINE, "python")
    assert re.search(r"fusion/fused/cpu/f32/op=softmax\S+ warm .*% of", run(code))


@pytest.mark.slow
def test_the_pair_of_the_crossover_page_runs() -> None:
    code = blocks(CROSSOVER, "python")[0].replace("high=4096", "high=64, budget_s=20, processes=4")
    assert re.search(r"in_one and in_two", run(code))


def test_the_advice_of_the_crossover_page_is_how_it_is_called(tmp_path: Path) -> None:
    code = blocks(CROSSOVER, "python")[1]
    rule = (
        '{"mechanism": "fusion", "backend": "cpu", "dtype": "f32", "fixed": {"op": "softmax"}, "axis": "rows", '
        '"keys": ["rows"], "low": 1, "high": 9, "thresholds": [], "use": ["fused"], "decided": true, "words": "w"}'
    )
    path = tmp_path / "advice.json"
    path.write_text(f'{{"program": "flashperf advise", "schema": 1, "device": "{cpu_model()}", "rules": [{rule}]}}')
    asked = code.replace("flashperf-out/.../advice.json", str(path)).replace(
        "table.choose", "chosen = table.choose"
    )
    assert run(f"import flashperf\n{asked}\nprint(chosen)") == "fused\n"


def test_kernels_commands_and_axes_are_named_as_they_are() -> None:
    kernels = set(re.findall(r"`(roof_\w+)`", ROOFLINE))
    assert kernels <= set(native.library().signatures)
    for text in (ROOFLINE, CROSSOVER):
        for command in re.findall(r"^flashperf (\w+)", text, re.MULTILINE):
            assert cli.main([command, "--help"]) == 0
    named = CROSSOVER.partition("Axes have friendly names")[2].partition(";")[0]
    assert set(re.findall(r"`(\w+)`", named)) == set(AXES)
