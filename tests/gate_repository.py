"""A small git repository with one bench of its own, two revisions apart: the second does the work twice."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

SETTINGS = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]

BENCH = """
import numpy as np
import mine
from flashperf.pytest_plugin import bench_cases
from flashperf.records import ArraySpec, Cost, Mechanism, Tolerance


def bind(case, inputs, outputs):
    def call():
        for _ in range(mine.TIMES):
            np.multiply(inputs["x"], 2.0, out=outputs["y"])
        if mine.BROKEN:
            raise ValueError("no such kernel")
    return call


MECHANISM = Mechanism(
    name="toy", question="How long?", claims=(), variants={"once": ("cpu",)}, standard="once", flash="once",
    dtypes=("f32",), test_sizes=({"n": 4},), bench_sizes=({"n": 40000},),
    make_inputs=lambda case: {"x": np.ones(case["n"], np.float32)},
    outputs=lambda case: {"y": ArraySpec((case["n"],), "f32")},
    reference=lambda case, inputs: {"y": inputs["x"].astype(np.float64) * 2},
    cost=lambda case: Cost(flops=case["n"], bytes_read=4 * case["n"], bytes_written=4 * case["n"]),
    ideal_bytes=lambda case: 8 * case["n"], tolerance=lambda case: Tolerance(0.0, 0.0, "exact"),
    bind={"cpu": bind},
)
test_toy = bench_cases(MECHANISM)
"""


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *SETTINGS, *arguments], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout


def write_module(folder: Path, times: int, broken: bool = False) -> None:
    (folder / "mine.py").write_text(f"TIMES = {times}\nBROKEN = {broken}\n")


def repository(folder: Path) -> Path:
    """Tags ``once``, ``twice`` and ``broken``; the working tree is at ``twice``, with an untracked file."""
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "bench").mkdir()
    (folder / "bench" / "bench_toy.py").write_text(BENCH)
    (folder / "pytest.ini").write_text("[pytest]\npython_files = bench_*.py\n")
    for tag, times, broken in (("broken", 1, True), ("once", 1, False), ("twice", 2, False)):
        write_module(folder, times, broken)
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "-m", tag)
        git(folder, "tag", tag)
    (folder / "untracked.txt").write_text("mine\n")
    return folder


def state(folder: Path) -> tuple[str, str, str, list[str]]:
    """What a comparison must leave as it was."""
    files = sorted(
        str(p.relative_to(folder)) for p in folder.rglob("*") if ".git" not in p.parts and p.is_file()
    )
    return (
        git(folder, "status", "--porcelain"),
        git(folder, "worktree", "list"),
        git(folder, "rev-parse", "HEAD"),
        files,
    )


def children() -> set[int]:
    """Processes that descend from this one."""
    import psutil

    return {child.pid for child in psutil.Process(os.getpid()).children(recursive=True)}
