"""Sections of the page for records that hold no explanation: rooflines, a crossover, cases, claims, scenarios."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from markupsafe import Markup

from flashperf.report.html import Section
from flashperf.report.numbers import bracketed, clean
from flashperf.store import Records
from flashperf.units import seconds


def rooflines(records: Records) -> list[Section]:
    """Every mechanism under its roofs: a picture each, and the distance to the roof in words."""
    from flashperf.plots.roofline import roofline_svg, title
    from flashperf.report.rooflines import notes
    from flashperf.roofs.points import RooflineRun
    from flashperf.roofs.suite import read_run

    run: RooflineRun = read_run(records.path)
    pictures = [
        {"picture": _inline(roofline_svg(run, name), f"roofline-{name}"), "title": title(name)}
        for name in run.mechanisms
    ]
    rows = []
    for point in (point for name in run.mechanisms for point in run.listed(name)):
        place = point.place(run.roofs)
        cache = "cold" if point.is_cold else "warm"
        cells = (point.case_id, cache, seconds(point.seconds.value), f"{100 * place.fraction_of_roof:.0f} %")
        rows.append([*cells, place.model_error or point.words(run.roofs)])
    heads = [("Case", "text"), ("Caches", "text"), ("Time", ""), ("Of the roof", "number"), ("Place", "text")]
    data = {
        "pictures": pictures,
        **_table("Places under the roofs", heads, rows),
        "notes": _clean(notes(run)),
    }
    return [Section("rooflines", "Measured kernels under their roofs", "records.html.j2", data)]


def crossover(records: Records) -> list[Section]:
    """Where one variant overtakes the other: the answer, the rule, the picture."""
    from flashperf.crossover.journal import replay
    from flashperf.crossover.result import lines
    from flashperf.plots.crossover import crossover_svg, title

    plan, result = replay(records.path)
    pictures = [{"picture": _inline(crossover_svg(result), records.path.stem), "title": title(result)}]
    data = {"pictures": pictures, "heads": [], "rows": [], "label": "", "notes": _clean(lines(result))}
    anchor = f"crossover-{records.path.stem}"
    title = f"Crossover: {clean(result.subject)}"
    return [
        Section(anchor, title, "records.html.j2", data, label=f"Crossover {clean(plan.mechanism)}".strip())
    ]


def cases(records: Records) -> list[Section]:
    """Public reports, as they came out here."""
    from flashperf.cases.analysis import read_report
    from flashperf.report.cases import footer, words

    report = read_report(records.path)
    rows = []
    for result in report.results:
        found = result.outcome.diagnosis
        ratio = bracketed(found.ratio) if found and found.ratio else ""
        name = f"{result.case.id} {result.case.name}"
        lost = found if found and found.sign == "slower" else None
        cause = [lost.mechanism, lost.confidence] if lost else ["", ""]
        rows.append([name, result.case.source, ratio, *cause, result.outcome.state])
    titles = ("Case", "Report", "Time ratio", "Mechanism", "Confidence", "Outcome")
    heads = [(title, "number" if title == "Time ratio" else "text") for title in titles]
    notes = [f"{result.case.id}: {' '.join(words(result))}" for result in report.results]
    data = {"pictures": [], **_table("Public cases", heads, rows), "notes": _clean([*notes, footer(report)])}
    return [Section("cases", "Public reports, measured here", "records.html.j2", data)]


def claims(records: Records) -> list[Section]:
    """Every claim of the source documents with its verdict."""
    from flashperf.claims.analysis import read_report
    from flashperf.report.claims import counts, footer

    report = read_report(records.path)
    rows = []
    for one in report.judged:
        measured = bracketed(one.measured) if one.measured else ""
        said = [one.verdict.state, *([f"({one.verdict.why})"] if one.verdict.why else [])]
        slip = f" In the document: {one.claim.slip}." if one.claim.slip else ""
        claimed = f"{'≥ ' * one.claim.at_least}{one.claim.ratio:.3g}" if one.claim.ratio else ""
        rows.append([one.claim.id, one.claim.says + slip, one.claim.how, measured, claimed, " ".join(said)])
    titles = ("", "Claim", "Measured as", "Here", "Claimed", "Verdict")
    kinds = ("text", "text", "", "number", "number", "text")
    data = {"pictures": [], **_table("Claims", list(zip(titles, kinds, strict=True)), rows)}
    broke = _clean(f"Failed: {failure}." for failure in report.failures)
    notes = [*broke, counts(report), footer(report), "One claim alone: flashperf claims ID."]
    return [Section("claims", "Claims of the source documents", "records.html.j2", {**data, "notes": notes})]


def scenario(records: Records) -> list[Section]:
    """A scenario: totals, gaps and where it ran first, then a section for each table."""
    from flashperf.report.scenarios import cell, footer, total_text
    from flashperf.scenarios.run import read_report

    report = read_report(records.path)
    found, anchor = report.findings, f"scenario-{report.scenario.name}"
    title = f"Scenario {report.scenario.name}"
    sections = []
    for table in found.tables:
        heads = [(column, "text" if number == 0 else "") for number, column in enumerate(table.columns)]
        rows = [[cell(value) for value in row] for row in table.rows]
        notes = _clean([table.note] if table.note else [])
        data = {"pictures": [], **_table(table.title, heads, rows), "notes": notes}
        name = f"{title}: {clean(table.title)}"
        sections.append(Section(f"{anchor}-table", name, "records.html.j2", data, listed=False))
    said = [total_text(total) for total in found.totals]
    gaps = [f"Not measured: {gap}." for gap in found.gaps]
    notes = _clean([*said, *found.sentences, *gaps, footer(report)])
    whole = {"pictures": [], "heads": [], "rows": [], "label": "", "notes": notes}
    return [Section(anchor, title, "records.html.j2", whole, label=title), *sections]


def _table(label: str, heads: Sequence[tuple[str, str]], rows: Iterable[Sequence[str]]) -> dict[str, Any]:
    """Column heads with how they sort (``number``, ``text`` or not), and rows of cells."""
    return {
        "label": label,
        "heads": [{"title": title, "sort": sort} for title, sort in heads],
        "rows": [_clean(row) for row in rows],
    }


def _clean(texts: Iterable[str]) -> list[str]:
    return [clean(text) for text in texts]


def _inline(svg: str, prefix: str) -> Markup:
    """A picture in the page's colours, its ids told apart by the prefix."""
    from flashperf.plots.style import themed

    return Markup(themed(svg, "".join(c if c.isalnum() else "-" for c in prefix)))
