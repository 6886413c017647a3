"""``python -m flashperf.gpu_run``: all stages inside one time budget, one folder of results."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from flashperf.gpu_run.machine import checkout, look
from flashperf.gpu_run.runner import Run
from flashperf.gpu_run.stages import STAGES

BUDGET_S = 480.0


def main() -> int:
    """Run the stages; 0 if none failed, 1 if one did, 2 for bad arguments."""
    names = [stage.name for stage in STAGES]
    parser = argparse.ArgumentParser(prog="python -m flashperf.gpu_run", description=__doc__)
    parser.add_argument(
        "--budget", type=_positive, default=BUDGET_S, metavar="SECONDS", help="for all stages"
    )
    parser.add_argument("--only", metavar="STAGE,...", help=f"of {', '.join(names)}; default: all")
    parser.add_argument("--out", type=Path, metavar="DIR", help="default: results/<name of the GPU>")
    options = parser.parse_args()
    chosen = options.only.split(",") if options.only else names
    for name in chosen:
        if name not in names:
            parser.error(f"no stage {name!r}: there are {', '.join(names)}")
    machine = look()
    # What the emulator says is no result to keep.
    parent = checkout() / ("results" if machine.gpu else "build/gpu-run")
    folder = options.out or parent / machine.folder_name
    try:
        run = Run(machine, folder, options.budget)
    except OSError as error:
        parser.error(f"no results can be written to {folder}: {error.strerror or error}")
    return run.all([stage for stage in STAGES if stage.name in chosen])


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is no positive number of seconds")
    return value


if __name__ == "__main__":
    sys.exit(main())
