"""The five steps of CONTRIBUTING.md, followed literally in a copy of the tree."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILES = (
    "csrc/cpu/column_sum.cpp",
    "flashperf/mechanisms/column_sum.py",
    "bench/bench_column_sum.py",
    "tests/test_column_sum.py",
)


def documented_files() -> dict[str, str]:
    """Path -> text of the code blocks of the five steps, each with the last path that was named before it."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    section = text[text.index("## A mechanism in five steps") : text.index("## A mechanism of your own")]
    found = {}
    for match in re.finditer(r"```(?:cpp|python)\n(.*?)```", section, re.DOTALL):
        paths = re.findall(r"`([\w/]+\.(?:cpp|py))`", section[: match.start()])
        found[paths[-1]] = match.group(1)
    return found


def test_every_step_has_its_file() -> None:
    assert tuple(documented_files()) == FILES


@pytest.mark.slow
def test_the_steps_add_a_mechanism_that_passes_its_contract_and_runs_as_a_bench(tmp_path: Path) -> None:
    if not (ROOT / "build" / "cpu").is_dir():
        pytest.skip("needs a checkout that was built here, for the objects that did not change")
    tree = tmp_path / "tree"
    skip = shutil.ignore_patterns(
        ".git", ".venv", "results", "emulator", "__pycache__", "flashperf-out", ".*cache"
    )
    shutil.copytree(ROOT, tree, ignore=skip)
    for path, text in documented_files().items():
        (tree / path).write_text(text)
    environment = {**os.environ, "PYTHONPATH": str(tree), "FLASHPERF_LEVELS": "native"}

    def run(*command: str) -> str:
        result = subprocess.run(
            [sys.executable, *command], cwd=tree, env=environment, capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    run("setup.py", "-q", "build_ext", "--inplace")
    quick = ("-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert "passed" in run(*quick, "tests/test_contract.py", "tests/test_column_sum.py", "-k", "column_sum")
    printed = run(*quick, "bench/bench_column_sum.py", "--flashperf-budget", "2")
    assert "column_sum/strided/cpu/f32" in printed
