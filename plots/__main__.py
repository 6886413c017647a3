"""All pictures of the docs, from committed records: ``python -m flashperf.plots`` (or ``make plots``).

The same records give the same bytes.
"""

from __future__ import annotations

from pathlib import Path

from flashperf.explain import replay
from flashperf.plots import training_curve
from flashperf.plots.waterfall import waterfall

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "results" / "xeon-amx" / "explain-a-without-int8.jsonl"
PICTURES = ROOT / "docs" / "pictures"


def main() -> None:
    """Draw every picture and say which."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    training_curve.main([])
    for path in waterfall(replay(RECORD), PICTURES / "waterfall"):
        print(f"drew {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
