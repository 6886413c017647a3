"""``flashperf report``: one self-contained page of one or more records."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flashperf.errors import EXIT_OK, UserError

Runs = Annotated[
    list[Path], typer.Argument(metavar="RUN...", help="Records (.jsonl), or folders that hold record.jsonl.")
]
Out = Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="Where the page goes.")]


def report(runs: Runs, out: Out = Path("report.html")) -> int:
    """Make one HTML page of any number of records.

    Of two explanations, what changed comes first. The page needs no network and no second file, and shows
    everything with JavaScript off too. Raw samples and tables (CSV, JSON) are carried for
    download. Exit codes: 0 written, 2 a record that can't be read.
    """
    from flashperf.report.run_sections import report_page

    page = report_page(runs)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(page, encoding="utf-8")
    except OSError as error:
        raise UserError(f"can't write {out}: {error.strerror}") from error
    print(f"wrote {out}")
    return EXIT_OK
