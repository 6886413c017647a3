"""A scenario's report as text and as JSON."""

from __future__ import annotations

import math
from typing import Any

from rich.console import RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from flashperf.records import Interval
from flashperf.report.numbers import bracketed
from flashperf.scenarios.definition import Cell, Table, Total, cores_text
from flashperf.scenarios.run import ScenarioReport
from flashperf.store import to_json
from flashperf.units import seconds

UNBROKEN = "\ue000"  # stands for a blank while a table is laid out: rich breaks lines at every real one
_VERDICTS = {"unresolved": "can't tell", "equivalent": "the same within 2 %"}


def cell(value: Cell) -> str:
    """A cell in words: a time with the half-width of its interval in percent, a ratio with its interval."""
    if isinstance(value, str):
        return _VERDICTS.get(value, value)
    if value.unit == "s":
        return _time(value.value)
    if value.unit == "fraction":
        side = 50 * (value.value.high - value.value.low)
        return f"{100 * value.value.value:.0f} %" + (f" ±{side:.0f}" if math.isfinite(side) else "")
    return bracketed(value.value)


def _time(interval: Interval) -> str:
    """``1.50 ms ±7 %``; ``~1.5 ms`` where it is not known to a factor of two."""
    side = interval.half_width / interval.value if interval.value else math.nan
    known = math.isfinite(side) and side < 1
    return f"{seconds(interval.value)} ±{100 * side:.0f} %" if known else f"~{seconds(interval.value)}"


def sections(report: ScenarioReport) -> list[RenderableType]:
    """Totals, tables, sentences, gaps, where and how long; in that order."""
    found = report.findings
    parts: list[RenderableType] = [
        Text(f"{report.scenario.name}: {report.scenario.question}", "bold"),
        Text(),
    ]
    for total in found.totals:
        parts.append(Text(total_text(total)))
    for table in found.tables:
        parts += [Text(), Text(table.title, "bold"), _rich(table)]
        parts += [Text(table.note, "dim")] if table.note else []
    if not found.tables:
        parts.append(
            Text("Too little was measured for a table: two processes of each side are the least.", "yellow")
        )
    parts += [Text(), *(Text(sentence) for sentence in found.sentences)] if found.sentences else []
    parts += [Text(f"Not measured: {gap}.", "yellow") for gap in found.gaps]
    return [*parts, Text(footer(report), "dim")]


def total_text(total: Total) -> str:
    """``what: ratio [low high], verdict``."""
    return f"{total.what}: {bracketed(total.ratio)}, {_VERDICTS.get(total.verdict, total.verdict)}"


def _rich(table: Table) -> RichTable:
    made = RichTable(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for number, title in enumerate(table.columns):
        made.add_column(title, overflow="fold", no_wrap=number < 2 or title.startswith("/"))
    for row in table.rows:
        made.add_row(*(_folded_at_error(cell(value)) for value in row))
    return made


def _folded_at_error(text: str) -> str:
    """``990 ms ±14 %`` with blanks at which a narrow column doesn't break it, but before its error."""
    return " ±".join(part.replace(" ", UNBROKEN) for part in text.split(" ±")) if " ±" in text else text


def footer(report: ScenarioReport) -> str:
    """Where and how long."""
    where = report.environment
    spent = "" if math.isnan(report.seconds) else f", {report.seconds:.0f} s"
    ended = "" if report.stopped == "done" else f", ended early ({report.stopped})"
    busy = f"; the machine was busy: {where.busy_reason}" if where.busy else ""
    return f"{where.device}, {cores_text(where.cores)}{spent}{ended}{busy}."


def markdown(report: ScenarioReport) -> str:
    """Totals and tables in Markdown."""
    lines = [f"- {total_text(total)}" for total in report.findings.totals]
    for table in report.findings.tables:
        lines += ["", f"**{table.title}**", "", _row(table.columns), _row(["---"] * len(table.columns))]
        lines += [_row([cell(value) for value in row]) for row in table.rows]
        lines += ["", table.note] if table.note else []
    for said in (*report.findings.sentences, *(f"Not measured: {gap}." for gap in report.findings.gaps)):
        lines += ["", said]
    return "\n".join([*lines, "", f"Measured on: {footer(report)}"])


def _row(cells: Any) -> str:
    return f"| {' | '.join(str(text).replace('|', '/') for text in cells)} |"


def as_json(report: ScenarioReport) -> dict[str, Any]:
    """Everything, as plain values: ratios are flash / standard, times in seconds."""
    return {
        "scenario": report.scenario.name,
        "question": report.scenario.question,
        "claims": list(report.scenario.claims),
        "findings": to_json(report.findings),
        "environment": to_json(report.environment),
        "seconds": to_json(report.seconds),
        "stopped": report.stopped,
    }
