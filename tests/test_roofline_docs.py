"""The pages on rooflines and crossovers: their code runs, their names are those of the program."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from flashperf import advice, cli, native
from flashperf.crossover.axes import AXES
from flashperf.crossover.simulation import JUMP, MISFITS, NOISE_LEVELS, RUNS, SLOPES
from flashperf.registry import names

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


def test_the_advice_of_the_crossover_page_is_what_the_record_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    small, large, softmax = run(blocks(CROSSOVER, "python")[1]).splitlines()
    table = advice("results/xeon-amx/advice.json", any_machine=True)
    assert [small, large] == [f"{n} {table.choose('precision', rows=n)}" for n in (1, 1000)]
    assert small != f"1 {large.split()[1]}"
    assert softmax.startswith(f"{table.choose('fusion', rows=300, op='softmax')} of (")
    assert {rule.mechanism for rule in table.rules} | {title for title, _ in table.left_out} >= set(names())


def test_the_page_shows_every_line_of_the_simulation() -> None:
    line = r"^slope +(\S+)  misfit +(\S+)  noise x (\S+) +right +(\S+)%"
    found = [tuple(map(float, match)) for match in re.findall(line, CROSSOVER, re.MULTILINE)]
    cells = [(slope, misfit, level) for slope in SLOPES for misfit in MISFITS for level in NOISE_LEVELS]
    assert [cell for *cell, _ in found] == [
        list(cell) for cell in cells + [(JUMP, 0.0, level) for level in NOISE_LEVELS]
    ]
    assert all(right >= 93 for *_, right in found)
    assert f"{RUNS * len(found):,} simulated runs" in CROSSOVER


def test_kernels_commands_and_axes_are_named_as_they_are() -> None:
    kernels = set(re.findall(r"`(roof_\w+)`", ROOFLINE))
    assert kernels <= set(native.library().signatures)
    for text in (ROOFLINE, CROSSOVER):
        for command in re.findall(r"^flashperf (\w+)", text, re.MULTILINE):
            assert cli.main([command, "--help"]) == 0
    named = CROSSOVER.partition("Axes have friendly names")[2].partition(";")[0]
    assert set(re.findall(r"`(\w+)`", named)) == set(AXES)
