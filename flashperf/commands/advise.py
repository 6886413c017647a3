"""``flashperf advise``: on this machine, which variant of everything, from which size on."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flashperf.advice import advice as read_advice
from flashperf.commands import complete
from flashperf.commands.crossover import Quiet
from flashperf.commands.explain import OUTPUT, fresh_folder
from flashperf.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_TOO_NOISY, UserError
from flashperf.progress import open_progress

if TYPE_CHECKING:
    from flashperf.advice import AdviceTable

ADVICE = "advice.json"
_WIDTH = 80


def advise(
    mechanisms: Annotated[
        list[str] | None,
        typer.Argument(
            autocompletion=complete.mechanisms, metavar="[MECHANISM...]", help="Default: all of them."
        ),
    ] = None,
    backend: Annotated[
        str, typer.Option(autocompletion=complete.backends, metavar="NAME", help="Where kernels run.")
    ] = "cpu",
    budget: Annotated[float, typer.Option(metavar="SECONDS", help="Wall time for all of them.")] = 300.0,
    high: Annotated[
        int | None,
        typer.Option(metavar="N", help="The largest size to look at [what is usual for the axis]."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for files [default: flashperf-out/TIME].")
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="PATH",
            help="Measure nothing: print an advice.json, or find it again from a folder of records.",
            show_default=False,
        ),
    ] = None,
    quiet: Quiet = False,
) -> int:
    """Say which variant to use from which size on.

    Runs ``flashperf crossover`` on the standard and the flash variant of every mechanism (batching: packed and
    padded), prints the table, and writes advice.json, which flashperf.advice(path).choose(mechanism, rows=...) reads.
    Exit codes: 0 done, 1 a process died, 3 nothing could be told, 130 interrupted (what was measured is kept and
    printed).
    """
    from flashperf.crossover.advise import INTERRUPTED, write_advice
    from flashperf.crossover.advise import advise as find
    from flashperf.registry import mechanism, names

    if source is not None:
        return _again(source, mechanisms or [])
    if backend != "cpu":
        raise UserError(f"crossovers are measured on the cpu backend so far, not on {backend}")
    if not 0 < budget < math.inf:
        raise UserError(f"the budget is {budget:g} s, must be positive")
    if high is not None and high < 2:
        raise UserError(f"--high is the largest size to look at, 2 or more, not {high}")
    chosen = [mechanism(name).name for name in mechanisms or names()]
    folder = out or fresh_folder(OUTPUT)
    path = folder / ADVICE
    with open_progress(quiet) as progress:
        found = find(
            chosen,
            backend=backend,
            budget_s=budget,
            high=high,
            folder=folder,
            progress=progress,
            finished=lambda found: write_advice(found, path),
        )
    show(read_advice(write_advice(found, path), any_machine=True))
    print(f"wrote {path}")
    if any(a.why_not == INTERRUPTED for a in found):
        return EXIT_INTERRUPTED
    if any(a.broke for a in found):
        return EXIT_FAILED
    return EXIT_OK if any(a.rule and a.rule.decided for a in found) else EXIT_TOO_NOISY


def _again(source: Path, mechanisms: list[str]) -> int:
    """Print what an earlier run found, of some mechanisms or of all."""
    from flashperf.crossover.advise import again, write_advice

    if mechanisms:
        raise UserError("--from prints the whole file; leave the mechanisms out")
    if not source.is_dir():
        show(read_advice(source, any_machine=True))
        return EXIT_OK
    path = write_advice(again(source), source / ADVICE)
    show(read_advice(path, any_machine=True))
    print(f"wrote {path}")
    return EXIT_OK


def show(advice: AdviceTable) -> None:
    """Print mechanism, axis with its range, and what to use; then what there is no advice on."""
    from rich import box
    from rich.table import Table

    from flashperf.report import console_for

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in ("mechanism", "by", "on this machine use"):
        made.add_column(column)
    for rule in advice.rules:
        made.add_row(rule.title, f"{rule.axis} {rule.low}-{rule.high}", rule.sentence)
    for title, why in advice.left_out:
        made.add_row(title, "", f"not measured: {why}")
    console = console_for(sys.stdout)
    if advice.device:
        console.print(advice.device, highlight=False)
    console.print(made, width=min(console.width, _WIDTH))
    if advice.busy:
        console.print(f"the machine was busy: {advice.busy}", highlight=False, soft_wrap=True)
