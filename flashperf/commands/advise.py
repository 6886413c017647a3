"""``flashperf advise``: on this machine, which variant of everything, from which size on."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flashperf.commands.crossover import Quiet
from flashperf.commands.explain import OUTPUT, fresh_folder
from flashperf.errors import EXIT_OK, EXIT_TOO_NOISY, UserError
from flashperf.progress import open_progress

if TYPE_CHECKING:
    from rich.table import Table

    from flashperf.crossover.advise import Advised

ADVICE = "advice.json"
_WIDTH = 80


def advise(
    mechanisms: Annotated[
        list[str] | None, typer.Argument(metavar="[MECHANISM...]", help="Default: all of them.")
    ] = None,
    backend: Annotated[str, typer.Option(metavar="NAME", help="Where kernels run.")] = "cpu",
    budget: Annotated[float, typer.Option(metavar="SECONDS", help="Wall time for all of them.")] = 300.0,
    high: Annotated[
        int | None, typer.Option(metavar="N", help="The largest size to look at [1024 or 4096].")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for files [default: flashperf-out/TIME].")
    ] = None,
    quiet: Quiet = False,
) -> int:
    """Say which variant to use from which size on.

    Runs ``flashperf crossover`` on the standard and the flash variant of every mechanism, prints the table, and
    writes advice.json, which flashperf.advice(path).choose(mechanism, rows=...) reads. Exit code 3 if nothing could
    be told.
    """
    from flashperf.crossover.advise import advise as find
    from flashperf.crossover.advise import write_advice
    from flashperf.registry import mechanism, names
    from flashperf.report import console_for

    if backend != "cpu":
        raise UserError(f"crossovers are measured on the cpu backend so far, not on {backend}")
    chosen = [mechanism(name).name for name in mechanisms or names()]
    folder = out or fresh_folder(OUTPUT)
    with open_progress(quiet) as progress:
        found = find(chosen, backend=backend, budget_s=budget, high=high, folder=folder, progress=progress)
    path = write_advice(found, folder / ADVICE)
    console = console_for(sys.stdout)
    console.print(table(found), width=min(console.width, _WIDTH))
    busy = next((a.result.environment.busy_reason for a in found if a.result), "")
    if busy:
        console.print(f"the machine was busy: {busy}")
    console.print(f"wrote {path}", soft_wrap=True)
    return EXIT_OK if any(a.rule and a.rule.decided for a in found) else EXIT_TOO_NOISY


def table(found: list[Advised]) -> Table:
    """Mechanism, axis with its range, and what to use."""
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in ("mechanism", "by", "on this machine use"):
        made.add_column(column)
    for advised in found:
        rule = advised.rule
        if rule is None:
            made.add_row(advised.title, "", f"not measured: {advised.why_not}")
        else:
            made.add_row(advised.title, f"{rule.axis} {rule.low}-{rule.high}", rule.words)
    return made
