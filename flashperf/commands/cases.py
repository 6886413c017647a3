"""``flashperf cases``: public reports in which an optimised path lost, measured and diagnosed on this machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flashperf.commands import complete
from flashperf.commands._kept import exit_code
from flashperf.commands.explain import BEGAN, OUTPUT, fresh_folder
from flashperf.errors import EXIT_FAILED, EXIT_OK, UserError
from flashperf.progress import open_progress

if TYPE_CHECKING:
    from flashperf.cases.analysis import CasesReport
    from flashperf.cases.definition import OpenCase

Names = Annotated[
    list[str] | None,
    typer.Argument(
        autocompletion=complete.cases,
        metavar="[CASE]...",
        help="Ids or names, such as A4, or a definition, FILE.py [default: all].",
        show_default=False,
    ),
]
Budget = Annotated[float, typer.Option(metavar="SECONDS", help="Wall time of all cases together.")]
Seed = Annotated[int, typer.Option(help="Of inputs and of the order of runs.")]
Out = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Folder for the record [default: flashperf-out/TIME].")
]
Replay = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Measure nothing: diagnose from a record.", show_default=False),
]
List = Annotated[bool, typer.Option("--list", help="List the cases; measure nothing.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Markdown = Annotated[bool, typer.Option("--markdown", help="Print the summary as a Markdown table.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]


def cases(
    names: Names = None,
    budget: Budget = 300.0,
    seed: Seed = 0,
    out: Out = None,
    replay: Replay = None,
    list_only: List = False,
    as_json: Json = False,
    markdown: Markdown = False,
    quiet: Quiet = False,
) -> int:
    """Diagnose public reports of optimisations that lost.

    For each case: both paths are seen to have run and to agree, are timed in pairs in several processes, and the
    loss is explained from measurements alone, or the case does not apply here. Exit codes: 0 done, 1 a case
    failed or the run was cut off, 2 bad arguments, 130 interrupted (what was measured is kept and reported).
    """
    from flashperf.cases.analysis import read_report
    from flashperf.cases.registry import all_cases, case_named, distinct

    if replay is not None and not list_only:
        return _shown(_only(read_report(replay), names or [], replay), bool(names), as_json, markdown, None)
    chosen = distinct(map(case_named, names)) if names else list(all_cases())
    if list_only:
        return _listed(chosen, as_json)
    from flashperf.cases.run import run_cases

    with open_progress(quiet) as progress:
        record = run_cases(chosen, out or fresh_folder(OUTPUT), budget, seed, progress, BEGAN)
    return _shown(read_report(record), bool(names), as_json, markdown, record)


def _only(report: CasesReport, names: Sequence[str], record: Path) -> CasesReport:
    """The cases of these ids or names, or all. Raises UserError for a name that the record does not hold."""
    from dataclasses import replace

    held = {text: r for r in report.results for text in (r.case.id.lower(), r.case.name)}
    absent = [name for name in names if name.lower() not in held]
    if absent:
        there = sorted(text for r in report.results for text in (r.case.id, r.case.name))
        raise UserError(f"{record} does not hold the case {absent[0]}; it holds {', '.join(there)}")
    chosen = [held[name.lower()].case.id for name in names]
    return replace(report, results=tuple(r for r in report.results if not names or r.case.id in chosen))


def _shown(report: CasesReport, detailed: bool, as_json: bool, markdown: bool, record: Path | None) -> int:
    """Print cases; the exit code. ``record``: where they were written just now."""
    from flashperf.commands.scenario import print_parts
    from flashperf.report import cases as render

    if as_json:
        print(json.dumps(render.as_json(report), indent=1, ensure_ascii=False))
    elif markdown:
        print(render.markdown(report))
    else:
        print_parts(render.sections(report, detailed))
    if record is not None:
        print(f"record {record}", file=sys.stderr if as_json or markdown else sys.stdout)
    return exit_code(report.stopped) or (EXIT_FAILED if report.failed else EXIT_OK)


def _listed(chosen: Sequence[OpenCase], as_json: bool) -> int:
    """Cases with what the reports say, and whether they can run here."""
    from rich.padding import Padding
    from rich.text import Text

    from flashperf.cases.guards import first_reason, this_machine
    from flashperf.report import console_for

    machine = this_machine()
    rows = [
        {
            "id": case.id,
            "name": case.name,
            "title": case.title,
            "source": case.source,
            "reported": case.reported,
            "why_not_here": first_reason(case.requires, machine),
        }
        for case in chosen
    ]
    if as_json:
        print(json.dumps(rows, indent=1, ensure_ascii=False))
        return EXIT_OK
    console = console_for(sys.stdout)
    width = min(console.width, 100)
    for row in rows:
        console.print(Text.assemble((f"{row['id']} {row['name']}", "bold"), f": {row['title']}"), width=width)
        body = f"{row['source']}: {row['reported']}"
        body += f" Not here: {row['why_not_here']}." if row["why_not_here"] else ""
        console.print(Padding(Text(body, "dim"), (0, 0, 0, 2), expand=False), width=width)
    return EXIT_OK
