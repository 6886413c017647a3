"""The tutorial: its Python runs, its commands exist with the options that it gives them."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from flashperf.cli import build

ROOT = Path(__file__).parent.parent
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text()
README = (ROOT / "README.md").read_text()
PYTHON = re.findall(r"```python\n(.*?)```", TUTORIAL, re.DOTALL)
FENCED = re.findall(r"```\n(.*?)```", TUTORIAL.replace("\\\n", " "), re.DOTALL)
COMMANDS = sorted(
    {line.split("#")[0].strip() for block in FENCED for line in block.splitlines()}
    | set(re.findall(r"`(flashperf [a-z][^`]*)`", TUTORIAL + README))
)


@pytest.mark.slow
def test_the_python_runs_as_one_script(tmp_path: Path) -> None:
    script = tmp_path / "mine.py"
    text = "\n\n".join(PYTHON).replace("budget_s=20", "budget_s=6")
    script.write_text(
        text.replace(
            "flashperf.compare(split, in_place, inputs)",
            "flashperf.compare(split, in_place, inputs, budget_s=1)",
        )
    )
    result = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert re.search(r"faster|slower|equivalent|can't tell", result.stdout)
    assert "rows" in result.stdout


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("flashperf ")])
def test_every_command_has_the_options_that_it_is_given(command: str) -> None:
    words = shlex.split(command.replace("...", ""))[1:]
    found = typer.main.get_command(build())
    while words and words[0] in getattr(found, "commands", {}):
        found = found.commands[words.pop(0)]
    known = {option for parameter in found.params for option in parameter.opts} | {"--help"}
    if found.context_settings.get("ignore_unknown_options"):
        return
    assert {word.partition("=")[0] for word in words if word.startswith("-")} <= known, command


def test_files_that_it_names_exist() -> None:
    for name in re.findall(r"docs/examples/\w+\.py", TUTORIAL):
        assert (ROOT / name).exists()
