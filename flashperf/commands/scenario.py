"""``flashperf scenario``: what belongs to a process or a machine rather than to a call, each with its own total."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flashperf.commands import complete
from flashperf.commands._kept import exit_code
from flashperf.commands.explain import BEGAN, OUTPUT, fresh_folder
from flashperf.errors import EXIT_FAILED, EXIT_OK, UserError
from flashperf.progress import open_progress

if TYPE_CHECKING:
    from rich.console import RenderableType

WIDTH = 100

Name = Annotated[
    str | None,
    typer.Argument(
        autocompletion=complete.scenarios,
        metavar="[NAME]",
        help="pinning, warmup, compile or parallelism [default: list them].",
        show_default=False,
    ),
]
Budget = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", help="Wall time [default: the scenario's].", show_default=False),
]
Seed = Annotated[int, typer.Option(help="Of inputs and of the order of runs.")]
Out = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Folder for the record [default: flashperf-out/TIME].")
]
Replay = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Measure nothing: report from a record.", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Markdown = Annotated[bool, typer.Option("--markdown", help="Print Markdown tables.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]


def scenario(
    name: Name = None,
    budget: Budget = None,
    seed: Seed = 0,
    out: Out = None,
    replay: Replay = None,
    as_json: Json = False,
    markdown: Markdown = False,
    quiet: Quiet = False,
) -> int:
    """Measure pinning, warm-up, torch.compile or parallelism.

    What belongs to a process or a machine rather than to a call: each scenario has its own total. Exit codes: 0
    done, 1 a process failed or the run was cut off, 2 bad arguments, 130 interrupted (what was measured is kept
    and reported).
    """
    if name is None and replay is None:
        return _listed(as_json)
    if replay is not None:
        return _shown(replay, name, as_json, markdown, new=False)
    from flashperf.scenarios.registry import scenario_named
    from flashperf.scenarios.run import run_scenario

    assert name is not None
    chosen, folder = scenario_named(name), out or fresh_folder(OUTPUT)
    allowed_s = chosen.budget_s if budget is None else budget
    try:
        with open_progress(quiet) as progress:
            record = run_scenario(chosen, folder, allowed_s, seed, progress, BEGAN)
    except Exception as error:
        kept = folder / "record.jsonl"
        if not kept.is_file():
            raise
        again = f"what was measured is kept: flashperf scenario --replay {kept}"
        raise UserError(f"{error}; {again}", getattr(error, "exit_code", EXIT_FAILED)) from error
    return _shown(record, name, as_json, markdown, new=True)


def _shown(record: Path, name: str | None, as_json: bool, markdown: bool, new: bool) -> int:
    """Print a record's report; the exit code."""
    from flashperf.report import scenarios as render
    from flashperf.scenarios.run import read_report

    report = read_report(record, name)
    if as_json:
        print(json.dumps(render.as_json(report), indent=1, ensure_ascii=False))
    elif markdown:
        print(render.markdown(report))
    else:
        print_parts(render.sections(report))
    if new:
        print(f"record {record}", file=sys.stderr if as_json or markdown else sys.stdout)
    return exit_code(report.stopped)


def _listed(as_json: bool) -> int:
    """All scenarios, and why one can't run here."""
    from rich.text import Text

    from flashperf.cases.guards import first_reason, this_machine
    from flashperf.scenarios.registry import all_scenarios

    machine = this_machine()
    rows = [
        {
            "name": found.name,
            "question": found.question,
            "claims": list(found.claims),
            "budget_s": found.budget_s,
            "why_not_here": first_reason(found.requires, machine),
        }
        for found in all_scenarios()
    ]
    if as_json:
        print(json.dumps(rows, indent=1, ensure_ascii=False))
        return EXIT_OK
    for row in rows:
        why_not = f" Not here: {row['why_not_here']}." if row["why_not_here"] else ""
        claims = f" (claims {' '.join(found for found in row['claims'])})"  # type: ignore[attr-defined]
        print_parts([Text.assemble((str(row["name"]), "bold"), f": {row['question']}{claims}{why_not}")])
    return EXIT_OK


def print_parts(parts: Iterable[RenderableType]) -> None:
    """Print with rich, at most WIDTH columns; where it isn't a terminal, without trailing blanks."""
    from flashperf.report import console_for
    from flashperf.report.scenarios import UNBROKEN

    console = console_for(sys.stdout)
    width = min(console.width, WIDTH)
    with console.capture() as captured:
        for part in parts:
            console.print(part, width=width)
    text = captured.get().replace(UNBROKEN, " ")
    if not console.is_terminal:
        text = "".join(line.rstrip() + "\n" for line in text.splitlines())
    console.file.write(text)
