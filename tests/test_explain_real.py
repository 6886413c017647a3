"""Whole runs of ``flashperf explain`` in real processes: directions and consistency only, never sizes."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flashperf.errors import EXIT_INTERRUPTED, EXIT_OK, EXIT_TOO_NOISY

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.slow


def explain(*arguments: str, out: Path) -> tuple[int, dict]:
    """Run the command; its exit code and JSON."""
    command = [
        sys.executable,
        "-m",
        "flashperf.cli",
        "explain",
        *arguments,
        "--out",
        str(out),
        "--json",
        "--quiet",
    ]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode in (EXIT_OK, EXIT_TOO_NOISY), result.stderr
    return result.returncode, json.loads(result.stdout)


def shares_of(found: dict) -> dict[str, dict]:
    return {share["switch"]: share for share in found["attribution"]["shares"]}


def test_the_pipeline_is_explained_recorded_and_replayed(tmp_path: Path) -> None:
    flash = "tiling=bad_tile,attention=materialised"
    _, found = explain("--flash", flash, "--budget", "30", "--seed", "3", out=tmp_path / "run")
    shares = shares_of(found)
    product = math.prod(share["share"]["value"] for share in shares.values())
    assert product == pytest.approx(found["attribution"]["total"]["value"], rel=1e-9)
    assert shares["tiling"]["share"]["value"] > 1
    assert shares["tiling"]["predicted"]["value"] > 1
    assert {name for name, share in shares.items() if share["active"]} == {"tiling", "attention"}
    names = {metric["name"] for metric in found["metrics"]}
    assert {
        "task latency",
        "time to first token",
        "peak memory",
        "bits per byte",
        "kernel-time share",
    } <= names
    for file in ("record.jsonl", "report.html", "waterfall.svg", "waterfall.png"):
        assert (tmp_path / "run" / file).stat().st_size > 0
    record = str(tmp_path / "run" / "record.jsonl")
    assert explain("--replay", record, out=tmp_path / "again")[1]["attribution"] == found["attribution"]


def test_the_documented_torch_example_runs_as_documented(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the example is a torch model")
    text = (ROOT / "docs" / "examples" / "torch_mlp.py").read_text()
    documented = re.search(r"flashperf explain (.*?)\n\n", text, re.DOTALL)
    assert documented is not None
    arguments = documented.group(1).replace("\\", " ").split()
    _, found = explain(*arguments, "--budget", "25", out=tmp_path)
    assert shares_of(found)["batching"]["share"]["value"] > 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl_c", "terminated"])
def test_a_signal_keeps_what_was_measured_and_leaves_no_process(tmp_path: Path, number: int) -> None:
    command = [sys.executable, "-m", "flashperf.cli", "explain", "--flash", "fusion=split", "--budget", "60"]
    command += ["--out", str(tmp_path / "run")]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    record = tmp_path / "run" / "record.jsonl"
    for _ in range(600):  # until two workers have answered, or a minute has passed
        if record.exists() and len(set(re.findall(r'"worker": (\d)', record.read_text()))) > 1:
            break
        time.sleep(0.1)
    process.send_signal(number)
    printed, said = process.communicate(timeout=60)
    assert process.returncode == EXIT_INTERRUPTED, said
    assert "artial" in printed
    assert '"stopped": "interrupted"' in record.read_text()
    children = [p for p in Path("/proc").glob("[0-9]*/environ") if _belongs(p, process.pid)]
    assert not children


def _belongs(environ: Path, parent: int) -> bool:
    """Whether a process is a worker whose parent was ``parent``; processes may end while they are looked at."""
    try:
        status = (environ.parent / "status").read_text()
        command = (environ.parent / "cmdline").read_bytes()
    except OSError:
        return False
    return b"flashperf.worker" in command and f"PPid:\t{parent}\n" in status and os.path.exists(environ)
