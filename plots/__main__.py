"""All pictures of the docs, from committed records: ``python -m flashperf.plots`` (or ``make plots``).

The same records give the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from flashperf.crossover import replay as replay_crossover
from flashperf.explain import replay
from flashperf.plots import training_curve
from flashperf.plots.crossover import crossover_picture
from flashperf.plots.roofline import roofline_page, roofline_picture
from flashperf.plots.waterfall import waterfall
from flashperf.roofs.suite import read_run

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results"
RECORD = RESULTS / "epyc-zen4" / "explain-a.jsonl"
ROOFLINE = RESULTS / "epyc-zen4" / "roofline.jsonl"
CROSSOVER = RESULTS / "xeon-amx" / "crossover-precision.jsonl"
PICTURES = ROOT / "docs" / "pictures"
SHOWN_APART = ("fusion",)  # mechanisms with a roofline of their own in the docs


def pictures(folder: Path) -> Iterator[Path]:
    """Draw every picture that is made of a record into a folder; the paths as they are written."""
    yield from waterfall(replay(RECORD), folder / "waterfall")
    run = read_run(ROOFLINE)
    yield from roofline_page(run, folder / "roofline")
    for mechanism in SHOWN_APART:
        yield from roofline_picture(run, mechanism, folder / f"roofline-{mechanism}")
    yield from crossover_picture(replay_crossover(CROSSOVER)[1], folder / "crossover")


def main() -> None:
    """Draw every picture and say which."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    training_curve.main([])
    for path in pictures(PICTURES):
        print(f"drew {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
