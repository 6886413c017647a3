"""Names that the shell completes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from flashperf.commands import complete


@pytest.mark.parametrize(
    ("names", "incomplete", "found"),
    [
        (complete.mechanisms, "pre", ["precision", "preprocessing"]),
        (complete.cases, "A1", ["A1", "A10"]),
        (complete.claims, "B2", ["B2", "B20", "B21"]),
        (complete.scenarios, "p", ["pinning", "parallelism"]),
        (complete.pipeline_scenarios, "s", ["single", "serve"]),
        (complete.backends, "c", ["cpu", "cuda"]),
        (complete.gpus, "h", ["h100", "h200"]),
        (complete.gpus, "nothing", []),
    ],
)
def test_what_begins_so(names, incomplete: str, found: list[str]) -> None:
    assert names(incomplete) == found


@pytest.mark.parametrize(
    ("words", "found"), [("flashperf advise ba", "batching"), ("flashperf explain --scenario se", "serve")]
)
def test_a_shell_gets_them(words: str, found: str) -> None:
    asked = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    done = subprocess.run(
        [sys.executable, "-m", "flashperf.cli"],
        env={**os.environ, **asked, "_FLASHPERF_COMPLETE": "complete_bash"},
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == [found], done.stderr
