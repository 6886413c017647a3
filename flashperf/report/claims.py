"""Claims and their verdicts as text, Markdown and JSON."""

from __future__ import annotations

import math
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from flashperf.claims.analysis import ClaimsReport, Judged
from flashperf.claims.judge import CONTRADICTED, DIRECTION, REPRODUCED, STATES
from flashperf.report.numbers import bracketed
from flashperf.store import to_json

_STYLES = {REPRODUCED: "green", DIRECTION: "green", CONTRADICTED: "red"}


def sections(report: ClaimsReport) -> list[RenderableType]:
    """Every claim with its verdict, then counts, and where it was measured."""
    parts: list[RenderableType] = []
    for one in report.judged:
        head = Text.assemble((f"{one.claim.id} ", "bold"), f"{one.claim.says} ", (_verdict(one), _style(one)))
        body = [Text(sentence, "dim") for sentence in _details(one)]
        parts.append(Group(head, *(Padding(line, (0, 0, 0, 2), expand=False) for line in body)))
    broke = [Text(f"Failed: {failure}.", "red") for failure in report.failures]
    alone = Text("One claim alone: flashperf claims ID, such as flashperf claims A13.", "dim")
    return [*parts, Text(), *broke, Text(counts(report), "bold"), Text(footer(report), "dim"), alone]


def _style(one: Judged) -> str:
    return _STYLES.get(one.verdict.state, "yellow" if one.measured else "dim")


def _verdict(one: Judged) -> str:
    why = f" ({one.verdict.why})" if one.verdict.why else ""
    return f"{one.verdict.state}{why}"


def _details(one: Judged) -> list[str]:
    """The measurement and, where there is one, the slip."""
    said = []
    if one.measured is not None:
        claimed = (
            f"; claimed {'at least ' * one.claim.at_least}{one.claim.ratio:.3g}" if one.claim.ratio else ""
        )
        said.append(f"{one.claim.how}: {bracketed(one.measured)}{claimed}")
    if one.claim.slip:
        said.append(f"In the document: {one.claim.slip}.")
    return said


def counts(report: ClaimsReport) -> str:
    """How many of each verdict."""
    states = [one.verdict.state for one in report.judged]
    return ", ".join(f"{states.count(state)} {state}" for state in STATES if state in states) + "."


def footer(report: ClaimsReport) -> str:
    """Where and how long."""
    where = report.environment
    spent = "" if math.isnan(report.seconds) else f", {report.seconds:.0f} s"
    ended = "" if report.stopped == "done" else f", ended early ({report.stopped})"
    busy = f"; the machine was busy: {where.busy_reason}" if where.busy else ""
    return f"{where.device}, {where.cores} core{'s' * (where.cores > 1)}{spent}{ended}{busy}."


def markdown(report: ClaimsReport) -> str:
    """A row per claim."""
    lines = [
        "| | claim | measured here | ratio [95 %] | claimed | verdict | alone |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in report.judged:
        slip = f" In the document: {one.claim.slip}." if one.claim.slip else ""
        claimed = f"{'≥ ' * one.claim.at_least}{one.claim.ratio:.3g}" if one.claim.ratio else "-"
        measured = bracketed(one.measured) if one.measured else "-"
        alone = f"`{one.command}`" if one.measured or one.claim.slip else "-"
        cells = (
            one.claim.id,
            one.claim.says + slip,
            one.claim.how or "-",
            measured,
            claimed,
            _verdict(one),
            alone,
        )
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    broke = [line for failure in report.failures for line in ("", f"Failed: {failure}.")]
    return "\n".join([*lines, *broke, "", counts(report), "", f"Measured on: {footer(report)}"])


def as_json(report: ClaimsReport) -> dict[str, Any]:
    """Everything, as plain values."""
    rows = [
        {
            "id": one.claim.id,
            "says": one.claim.says,
            "how": one.claim.how,
            "claimed_ratio": one.claim.ratio,
            "measured_ratio": to_json(one.measured),
            "verdict": one.verdict.state,
            "why": one.verdict.why,
            "slip": one.claim.slip,
            "command": one.command,
        }
        for one in report.judged
    ]
    return {
        "claims": rows,
        "environment": to_json(report.environment),
        "seconds": to_json(report.seconds),
        "stopped": report.stopped,
        "failures": list(report.failures),
    }
