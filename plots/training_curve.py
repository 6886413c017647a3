"""Draw the small model's training curve: `python -m flashperf.plots.training_curve [--out FILE]`."""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Sequence
from pathlib import Path

from flashperf.plots.style import PALETTE, figure, svg_text

DATA = Path("flashperf/pipeline/data")
PICTURE = Path("docs/pictures/training_curve.svg")


def draw(curve: Sequence[tuple[int, float, float]], order5_bpb: float, out: Path) -> None:
    """Write an SVG of `curve` (step, training and held-out bits per byte) with the order-5 model as a line.

    The same figures give the same bytes.
    """
    if not curve:
        raise ValueError("a training curve needs at least one row")
    steps, train, heldout = zip(*curve, strict=True)
    with figure(6.4, 3.6) as drawn:
        axes = drawn.add_subplot()
        axes.axhline(
            order5_bpb, color=PALETTE["muted"], linestyle=":", label="order-5 byte counts, held-out text"
        )
        axes.plot(steps, train, color=PALETTE["helps"], linestyle="--", label="training text, with dropout")
        axes.plot(steps, heldout, color=PALETTE["slows"], label="held-out text")
        axes.annotate(
            f"{heldout[-1]:.2f}", (steps[-1], heldout[-1]), (4, 0), textcoords="offset points", va="center"
        )
        axes.set(xlabel="step", ylabel="bits per byte", xlim=(0, steps[-1]), ylim=(1.0, 4.5))
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
        drawn.tight_layout()
        description = (
            f"Bits per byte of the held-out text fall from {heldout[0]:.2f} at step {steps[0]} "
            f"to {heldout[-1]:.2f} at step {steps[-1]}; order-5 byte counts reach {order5_bpb:.2f}."
        )
        out.parent.mkdir(parents=True, exist_ok=True)
        svg = svg_text(drawn, "Training curve of the small model", description, text_as_paths=True)
    out.write_text(svg, encoding="utf-8")


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
