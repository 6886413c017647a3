"""An explanation as text, as a page, as JSON and as files. All is drawn from an ``Explanation`` alone."""

from __future__ import annotations

import os
from pathlib import Path

from flashperf.errors import UserError
from flashperf.records import Explanation
from flashperf.report.as_json import to_json
from flashperf.report.tables import attribution_table
from flashperf.report.terminal import console_for, print_explanation
from flashperf.report.words import headline, noise_reason, words

__all__ = [
    "attribution_table",
    "console_for",
    "headline",
    "noise_reason",
    "print_explanation",
    "to_json",
    "words",
    "writable_folder",
    "write_report",
]


def write_report(
    explanation: Explanation, folder: Path, record: Path | None = None, warning: str = ""
) -> list[Path]:
    """Write report.html, waterfall.svg and waterfall.png into ``folder``; returns the paths.

    ``record``: the JSON lines of the raw samples, carried by the page. ``warning``: shown under its verdict.
    Raises UserError where the folder can't be written.
    """
    from flashperf.plots.waterfall import waterfall
    from flashperf.report.html import html_report

    writable_folder(folder)
    lines = record.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True) if record else ()
    page = folder / "report.html"
    page.write_text(html_report(explanation, lines, warning), encoding="utf-8")
    if not any(share.active for share in explanation.attribution.shares):
        return [page]
    return [page, *waterfall(explanation, folder / "waterfall")]


def writable_folder(folder: Path) -> Path:
    """Make ``folder`` if need be. Raises UserError, with the reason, where nothing can be written into it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"can't make the folder {folder}: {error.strerror}; choose another with --out"
        ) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UserError(f"can't write into {folder}; choose another with --out")
    return folder
