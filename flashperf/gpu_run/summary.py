"""The page that a run leaves: what ran, on what, and the rows of the comparison. Rewritten after every stage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def write_summary(folder: Path) -> None:
    """``summary.md`` from what the folder holds so far."""
    state = json.loads((folder / "run.json").read_text())
    lines = [*_head(state), "", *_stages(state["stages"])]
    comparison = folder / "comparison.json"
    if comparison.exists():
        lines += ["", *_comparison(json.loads(comparison.read_text()))]
    (folder / "summary.md").write_text("\n".join(lines) + "\n")


def _head(state: dict[str, Any]) -> list[str]:
    machine = state["machine"]
    if not machine["gpu"]:
        return [
            "# Emulated",
            "",
            f"No GPU here ({machine['why_not']}): kernels ran on the CPU emulator. Nothing below is a time.",
        ]
    details = ", ".join(f"{name} {value}" for name, value in machine["details"].items())
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    nvcc = f"nvcc {machine['nvcc']}" if machine["nvcc"] else "no nvcc, NVRTC"
    return [f"# {machine['gpu']}", "", f"{details}. {versions}. {nvcc}."]


def _stages(results: list[dict[str, Any]]) -> list[str]:
    lines = ["| stage | | s | limit s | last line |", "|---|---|--:|--:|---|"]
    for result in results:
        last = result["tail"][-1].replace("|", "\\|") if result["tail"] else ""
        lines.append(
            f"| {result['stage']} | {result['status']} | {result['seconds']:.0f} | {result['limit_s']:.0f} | {last} |"
        )
    return lines


def _comparison(found: dict[str, Any]) -> list[str]:
    lines = [
        "Ours against the baseline in paired double blocks of one process: speed as a share of the baseline's, with "
        "the interval over the blocks. Aim: the least share that the first version was to reach.",
        "",
        "| kernel | baseline | share | aim | ours | rate | clocks |",
        "|---|---|--:|--:|--:|--:|---|",
    ]
    for row in found["rows"]:
        if row.get("problem"):
            lines.append(f"| {row['case']} | {row['baseline']} | {row['problem']} | {_aim(row)} | | | |")
            continue
        if row.get("share") is None:
            lines.append(f"| {row['case']} | {row['baseline']} | right, not timed | {_aim(row)} | | | |")
            continue
        low, high = row["share_low"], row["share_high"]
        share = f"{row['share']:.2f} [{low:.2f}, {high:.2f}]"
        clocks = "; ".join(row["disagreements"]) or "agree"
        lines.append(
            f"| {row['case']} | {row['baseline']} | {share} | {_aim(row)} | {row['ours_s'] * 1e6:.1f} us | "
            f"{row['rate']} | {clocks} |"
        )
    return lines


def _aim(row: dict[str, Any]) -> str:
    return f"{row['aim']:.2f}" if row.get("aim") else ""
