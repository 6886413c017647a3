"""Cases as text, Markdown and JSON. Pure: a report in, lines or values out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from flashperf.cases.analysis import CaseResult, CasesReport
from flashperf.cases.definition import CONTROL, OpenCase
from flashperf.cases.diagnosis import CANT_TELL, Diagnosis
from flashperf.cases.measured import PairMeasured
from flashperf.records import Interval
from flashperf.report.numbers import bracketed
from flashperf.store import to_json
from flashperf.units import seconds

_STATE_STYLES = {"as reported": "green", "not reproduced": "yellow", CANT_TELL: "dim", "not measured": "dim"}


def _ratio(interval: Interval) -> str:
    return bracketed(interval)


def _mechanism(found: Diagnosis | None) -> str:
    if found is None:
        return "-"
    if found.sign != "slower":
        return "no loss" if found.sign != CANT_TELL else CANT_TELL
    return found.mechanism


def summary_table(results: Sequence[CaseResult]) -> Table:
    """A row per case: ratio, mechanism, confidence, outcome."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for title in ("case", "time ratio [95 %]", "mechanism (confidence)", "outcome"):
        table.add_column(title, overflow="fold", no_wrap=title.startswith(("case", "time")))
    for result in results:
        found = result.outcome.diagnosis
        table.add_row(
            f"{result.case.id} {result.case.name}",
            _ratio(found.ratio) if found else "-",
            _mechanism(found) + (f" ({found.confidence})" if found and found.sign == "slower" else ""),
            Text(result.outcome.state, _STATE_STYLES.get(result.outcome.state, "")),
        )
    return table


def words(result: CaseResult) -> list[str]:
    """What came out of one case, a sentence each."""
    case, found = result.case, result.outcome.diagnosis
    if found is None:
        return [f"Not measured: {result.outcome.why}."]
    measured = result.measured
    assert measured is not None
    where = measured.points[measured.headline].label
    said = [_size(case, found, measured.pair, where)]
    if found.sign == "slower":
        said.append(_cause(found))
    if found.crossover != "not swept":
        said.append(f"Along {case.axis}: {found.crossover}.")
    said += [f"Beside it: {beside}."] if (beside := _beside(result)) else []
    said.append(_outcome_words(result))
    said += [f"Failed: {failure}." for failure in result.failures]
    if case.stand_in:
        said.append(f"A stand-in: {case.stand_in}.")
    return said


def _size(case: OpenCase, found: Diagnosis, pair: PairMeasured, where: str) -> str:
    times = f"{seconds(pair.other.time_s.value)} against {seconds(pair.baseline.time_s.value)} a call"
    text = (
        f"At {where}, {case.optimised} takes {_ratio(found.ratio)} times as long as {case.baseline} ({times}"
    )
    if case.fresh:
        facts = pair.other.facts
        text += f" on average; the median is {seconds(facts['median_s'])}, the largest {seconds(facts['largest_s'])}"
        text += f", steady {seconds(facts['steady_s'])} against {seconds(pair.baseline.facts['steady_s'])}"
    return text + ")."


def _beside(result: CaseResult) -> str:
    """Other paths at the headline point, and the diagnosed one at the controls."""
    measured = result.measured
    assert measured is not None
    here = measured.points[measured.headline]
    said = [
        f"{name} {_ratio(pair.ratio.ratio)}"
        for name, pair in sorted(here.pairs.items())
        if pair != measured.pair
    ]
    for point in measured.points:
        if point.role == CONTROL and measured.optimised in point.pairs:
            said.append(f"control, {point.label}: {_ratio(point.pairs[measured.optimised].ratio.ratio)}")
    return "; ".join(said)


def _cause(found: Diagnosis) -> str:
    if found.mechanism == CANT_TELL:
        return f"Mechanism: can't tell; {found.because}."
    size = "by exclusion" if found.by_exclusion else f"predicts {found.explained:.0%} of the difference"
    size += f"; confidence {found.confidence}"
    return f"Mechanism: {found.mechanism} ({size}): {found.because}."


def _outcome_words(result: CaseResult) -> str:
    found = result.outcome
    if found.state == "does not apply":
        return f"The report's loss is not to be expected here: {found.why}."
    return f"Outcome: {found.state}{f' ({found.why})' if found.why else ''}."


def points_table(result: CaseResult) -> Table:
    """Every point and path of one case: times and ratio."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for title in ("point", "path", "time", "baseline", "ratio [95 %]", ""):
        table.add_column(title, justify="right" if title in ("time", "baseline") else "left", overflow="fold")
    assert result.measured is not None
    for point in result.measured.points:
        for name, pair in sorted(point.pairs.items()):
            table.add_row(
                point.label + (" (control)" if point.role == "control" else ""),
                name,
                seconds(pair.other.time_s.value),
                seconds(pair.baseline.time_s.value),
                _ratio(pair.ratio.ratio),
                pair.sign,
            )
    return table


def sections(report: CasesReport, detailed: bool) -> list[RenderableType]:
    """What is printed, in order: the table, then every case in words; ``detailed``: with all its points."""
    parts: list[RenderableType] = [summary_table(report.results), Text()]
    for result in report.results:
        parts.append(Text(f"{result.case.id} {result.case.name}: {result.case.title}", "bold"))
        body: list[RenderableType] = []
        if detailed:
            body.append(Text(f"{result.case.source}: {result.case.reported}", "dim"))
        body += [Text(sentence) for sentence in words(result)]
        if detailed and result.measured is not None:
            body.append(points_table(result))
        parts.append(Padding(Group(*body), (0, 0, 0, 2), expand=False))
    parts.append(Text(footer(report), "dim"))
    return parts


def footer(report: CasesReport) -> str:
    """Where and how long."""
    where = report.environment
    busy = f"; the machine was busy: {where.busy_reason}" if where.busy else ""
    spent = "" if math.isnan(report.seconds) else f", {report.seconds:.0f} s"
    ended = "" if not report.partial else f", ended early ({report.stopped})"
    cores = f"{where.cores} core{'s' * (where.cores > 1)}"
    return f"{where.device}, {cores}, torch {where.versions.get('torch', 'none')}{spent}{ended}{busy}."


def markdown(report: CasesReport) -> str:
    """The summary as a Markdown table, and the machine under it."""
    lines = [
        "| case | report | optimised / baseline | time ratio [95 %] | mechanism | confidence | outcome |",
        "|---|---|---|---|---|---|---|",
    ]
    for result in report.results:
        case, found = result.case, result.outcome.diagnosis
        why = f" ({result.outcome.why})" if result.outcome.why else ""
        cells = (
            f"{case.id} {case.name}",
            case.source,
            f"{case.optimised} / {case.baseline}",
            _ratio(found.ratio) if found else "-",
            _mechanism(found),
            found.confidence if found else "-",
            result.outcome.state + why,
        )
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    return "\n".join([*lines, "", f"Measured on: {footer(report)}"])


def as_json(report: CasesReport) -> dict[str, Any]:
    """Everything, as plain values; ratios are optimised / baseline, times in seconds."""
    cases = [
        {
            "id": result.case.id,
            "name": result.case.name,
            "source": result.case.source,
            "expected": result.case.expectation.sign,
            "expected_mechanism": result.case.expectation.mechanism,
            "outcome": to_json(result.outcome),
            "points": to_json(result.measured.points) if result.measured else [],
            "failures": list(result.failures),
            "words": words(result),
        }
        for result in report.results
    ]
    return {
        "environment": to_json(report.environment),
        "cases": cases,
        "seconds": to_json(report.seconds),
        "stopped": report.stopped,
    }
