"""An explanation's tables as CSV: one row a line, plain numbers in base units, empty where nothing was measured."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence

from flashperf.records import Explanation, Interval

_INTERVAL = ("", "_low", "_high")


def csv_tables(explanation: Explanation) -> dict[str, str]:
    """File name -> CSV text: metrics in their recorded units, shares and interactions as Flash / Standard."""
    tables = {"metrics.csv": _metrics(explanation), "attribution.csv": _attribution(explanation)}
    if explanation.attribution.interactions:
        tables["interactions.csv"] = _interactions(explanation)
    return tables


def _metrics(explanation: Explanation) -> str:
    head = ["metric", "unit", *_named("standard"), *_named("flash"), *_named("ratio"), "note"]
    rows = (
        [m.name, m.unit, *_ends(m.standard), *_ends(m.flash), *_ends(m.ratio), m.note]
        for m in explanation.metrics
    )
    return _written(head, rows)


def _attribution(explanation: Explanation) -> str:
    parts = ("share", "percent", "alone", "on_top", "predicted", "predicted_cold", "unexplained")
    head = ["switch", "standard", "flash", "active", *(name for part in parts for name in _named(part))]
    shares = explanation.attribution.shares
    rows = [
        [s.switch, s.standard, s.flash, int(s.active), *(end for p in parts for end in _ends(getattr(s, p)))]
        for s in shares
    ]
    total = ["total", "", "", 1, *_ends(explanation.attribution.total), *[""] * (3 * (len(parts) - 1))]
    return _written(head, [*rows, total])


def _interactions(explanation: Explanation) -> str:
    parts = ("ratio", "ratio_on_standard", "ratio_on_flash")
    head = ["switch_a", "switch_b", "confirmed", *(name for part in parts for name in _named(part))]
    rows = (
        [*pair.switches, int(pair.confirmed), *(end for p in parts for end in _ends(getattr(pair, p)))]
        for pair in explanation.attribution.interactions
    )
    return _written(head, rows)


def _named(column: str) -> list[str]:
    return [column + end for end in _INTERVAL]


def _ends(interval: Interval | None) -> list[str]:
    """Value, low and high with all their digits; an end that isn't finite is empty."""
    if interval is None:
        return ["", "", ""]
    return [f"{x!r}" if math.isfinite(x) else "" for x in (interval.value, interval.low, interval.high)]


def _written(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head)
    writer.writerows([_safe(cell) for cell in row] for row in rows)
    return out.getvalue()


def _safe(cell: object) -> object:
    """A name that a spreadsheet would run as a formula gets an apostrophe before it (OWASP, CSV injection)."""
    is_formula = isinstance(cell, str) and cell[:1] in ("=", "+", "@", "\t", "\r")
    return f"'{cell}" if is_formula else cell
