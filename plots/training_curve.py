"""Draw the small model's training curve: `python -m flashperf.plots.training_curve [--out FILE]`."""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

DATA = Path("flashperf/pipeline/data")
PICTURE = Path("docs/pictures/training_curve.svg")
_TRAIN, _HELDOUT, _YARDSTICK = "#4c78a8", "#d1495b", "#6b6b6b"  # told apart in grey, too: dashes and labels


def draw(curve: Sequence[tuple[int, float, float]], order5_bpb: float, out: Path) -> None:
    """Write an SVG of `curve` (step, training and held-out bits per byte) with the order-5 model as a line.

    The same figures give the same bytes: no date, and element ids from a fixed salt.
    """
    if not curve:
        raise ValueError("a training curve needs at least one row")
    steps, train, heldout = zip(*curve, strict=True)
    with matplotlib.rc_context({"svg.hashsalt": "flashperf", "svg.fonttype": "none", "font.size": 10}):
        figure = Figure(figsize=(6.4, 3.6), layout="constrained")
        axes = figure.add_subplot()
        axes.axhline(
            order5_bpb, color=_YARDSTICK, linestyle=":", label=f"order-5 byte counts ({order5_bpb:.2f})"
        )
        axes.plot(steps, train, color=_TRAIN, linestyle="--", label="training text, with dropout")
        axes.plot(steps, heldout, color=_HELDOUT, label=f"held-out text ({heldout[-1]:.2f} at the end)")
        axes.set(xlabel="step", ylabel="bits per byte", xlim=(0, steps[-1]), ylim=(1.0, 4.0))
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
        out.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": "flashperf"})


def read_curve(path: Path) -> list[tuple[int, float, float]]:
    """The rows of a training_curve.csv. Raises ValueError if it has other columns than training writes."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = csv.DictReader(file)
        if rows.fieldnames != ["step", "train_bpb", "heldout_bpb"]:
            raise ValueError(f"{path}: not a training curve, its columns are {rows.fieldnames}")
        return [(int(row["step"]), float(row["train_bpb"]), float(row["heldout_bpb"])) for row in rows]


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw the committed curve; paths are relative to the repository."""
    parser = argparse.ArgumentParser(description="Draw the small model's training curve as SVG.")
    parser.add_argument(
        "--data", type=Path, default=DATA, help="folder of training_curve.csv and model_card.json"
    )
    parser.add_argument("--out", type=Path, default=PICTURE)
    options = parser.parse_args(arguments)
    card = json.loads((options.data / "model_card.json").read_text(encoding="utf-8"))
    draw(read_curve(options.data / "training_curve.csv"), card["order5_bpb"], options.out)


if __name__ == "__main__":
    main()
