"""``flashperf selfcheck``: the program's own claims about its accuracy, checked."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated

import typer

from flashperf.errors import EXIT_FAILED, EXIT_OK
from flashperf.progress import ProgressSink, open_progress


def attribution(
    real: Annotated[
        bool, typer.Option("--real", help="Burn the causes in processes; judge directions only.")
    ] = False,
    runs: Annotated[int, typer.Option(min=1, help="Simulated runs.")] = 400,
    seed: Annotated[int, typer.Option(help="Of the simulation.")] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> int:
    """Recover planted causes; check the intervals.

    Compares the shares with what was planted, and how often their intervals hold it. Exit code 1 if it fails.
    """
    from flashperf.selfcheck import selfcheck_attribution, selfcheck_real

    with open_progress(quiet) as progress:
        progress.phase("selfcheck", "planted causes, " + ("burnt" if real else "recorded noise replayed"))
        told = counted(progress)
        if real:
            lines, passed = _result(selfcheck_real(seed=seed, progress=told))
        else:
            lines, passed = _result(selfcheck_attribution(runs, seed, progress=told))
    print("\n".join(lines))
    return EXIT_OK if passed else EXIT_FAILED


def _result(report: object) -> tuple[list[str], bool]:
    return report.lines(), report.passed  # type: ignore[attr-defined]


def counted(progress: ProgressSink) -> Callable[[int, int], None]:
    """A (done, all) callback that tells a sink how far it is and how long the rest will take."""
    began = time.monotonic()

    def tell(done: int, all_of_them: int) -> None:
        spent = time.monotonic() - began
        left = spent / done * (all_of_them - done) if done else float("nan")
        progress.update(done / all_of_them, left, [f"{done} of {all_of_them}"])

    return tell
