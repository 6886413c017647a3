"""``flashperf claims``: what the two source documents claim, and what comes out here."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from flashperf.commands import complete
from flashperf.commands._kept import exit_code
from flashperf.commands.explain import BEGAN, OUTPUT, fresh_folder
from flashperf.commands.scenario import print_parts
from flashperf.errors import EXIT_FAILED, EXIT_OK, UserError
from flashperf.progress import open_progress

Names = Annotated[
    list[str] | None,
    typer.Argument(
        autocompletion=complete.claims,
        metavar="[CLAIM]...",
        help="Ids, such as A13 [default: all].",
        show_default=False,
    ),
]
Budget = Annotated[float, typer.Option(metavar="SECONDS", help="Wall time of everything together.")]
Seed = Annotated[int, typer.Option(help="Of inputs and of the order of runs.")]
Out = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Folder for the records [default: flashperf-out/TIME].")
]
Replay = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Measure nothing: judge from a record.", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Markdown = Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]


def claims(
    names: Names = None,
    budget: Budget = 300.0,
    seed: Seed = 0,
    out: Out = None,
    replay: Replay = None,
    as_json: Json = False,
    markdown: Markdown = False,
    quiet: Quiet = False,
) -> int:
    """Test the claims of the source documents.

    One verdict each: reproduced, in direction, contradicted, can't tell, or not testable here and why. Slips in
    the documents' arithmetic are shown. Exit codes: 0 done, 1 something broke or was cut off, 2 bad arguments, 130
    interrupted (what was measured is kept and judged).
    """
    from flashperf.claims.catalogue import CLAIMS, claim_named

    chosen = list({claim.id: claim for claim in map(claim_named, names)}.values()) if names else list(CLAIMS)
    record = replay
    if record is None:
        from flashperf.claims.run import run_claims

        with open_progress(quiet) as progress:
            record = run_claims(chosen, out or fresh_folder(OUTPUT), budget, seed, progress, BEGAN)
    return _shown(record, {claim.id for claim in chosen}, as_json, markdown, replay is None)


def _shown(record: Path, wanted: set[str], as_json: bool, markdown: bool, new: bool) -> int:
    """Print a record's claims; the exit code."""
    from dataclasses import replace

    from flashperf.claims.analysis import read_report
    from flashperf.report import claims as render

    report = read_report(record)
    report = replace(report, judged=tuple(one for one in report.judged if one.claim.id in wanted))
    if not report.judged:
        raise UserError(f"{record} holds none of the claims {', '.join(sorted(wanted))}")
    if as_json:
        print(json.dumps(render.as_json(report), indent=1, ensure_ascii=False))
    elif markdown:
        print(render.markdown(report))
    else:
        print_parts(render.sections(report))
    if new:
        print(f"record {record}", file=sys.stderr if as_json or markdown else sys.stdout)
    return exit_code(report.stopped) or (EXIT_FAILED if report.failures else EXIT_OK)
