"""The report as one HTML page that needs nothing else: no network, no second file; all is there without its script.

A page is a list of sections; each names its template and its data. What other commands add (rooflines,
crossovers, claims, a comparison) is another ``Section``.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import gzip
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from flashperf.records import Explanation
from flashperf.report import context
from flashperf.report.as_csv import csv_tables
from flashperf.report.as_json import to_json
from flashperf.report.numbers import clean
from flashperf.report.words import headline, noise_reason

if TYPE_CHECKING:
    from jinja2 import Environment as Templates

TEMPLATES = Path(__file__).resolve().parent.parent / "templates"
MAX_EMBEDDED_BYTES = (
    3_000_000  # of base64; a larger record is named, not carried, so that a page stays under 5 MB
)


@dataclass(frozen=True)
class Section:
    """A part of the page: its anchor, its heading, the template that draws it, and the template's data.

    label: what the navigation calls it, if that isn't the anchor. listed: whether it is in the navigation
    """

    anchor: str
    title: str
    template: str
    data: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""
    listed: bool = True


@functools.cache
def _templates() -> Templates:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    found = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters["clean"] = clean
    return found


def render_page(title: str, verdict: Mapping[str, Any], sections: Sequence[Section]) -> str:
    """The page: the verdict (``context.verdict``), then the sections in order; the templates escape."""
    templates = _templates()
    bodies = [(s, Markup(templates.get_template(s.template).render(**s.data))) for s in sections]
    script = (TEMPLATES / "report.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()  # no other script may run
    return templates.get_template("report.html.j2").render(
        title=title, sections=bodies, script=Markup(script), script_hash=f"sha256-{digest}", **verdict
    )


def explanation_sections(explanation: Explanation, record: bytes = b"", run: str = "") -> list[Section]:
    """The sections of one explanation; parts that were not measured are left out.

    ``run``: what tells its anchors and headings apart where the page holds several runs.
    """
    sections = _sections(explanation, record, f"waterfall{run}")
    if not run:
        return sections
    return [
        dataclasses.replace(
            s, anchor=f"{s.anchor}-{run}", title=f"Run {run}: {s.title}", label=f"{run}: {s.anchor}"
        )
        for s in sections
    ]


def _sections(explanation: Explanation, record: bytes, prefix: str) -> list[Section]:
    attribution = explanation.attribution
    active = [share for share in attribution.shares if share.active]
    sections = []
    if explanation.metrics:
        data = context.metrics(explanation.metrics)
        sections.append(Section("metrics", "Standard against Flash", "metrics.html.j2", data))
    if active:
        data = {"picture": _waterfall(explanation, prefix)}
        sections.append(
            Section("waterfall", "From Standard to Flash, step by step", "waterfall.html.j2", data)
        )
        data = context.attribution(explanation)
        sections.append(Section("attribution", "What made the difference", "attribution.html.j2", data))
    if len(active) > 1:
        data = context.interactions(attribution)
        sections.append(Section("interactions", "Interactions", "interactions.html.j2", data))
    if any(share.predicted for share in active):
        data = context.predicted(attribution)
        sections.append(Section("predicted", "Predicted against measured", "predicted.html.j2", data))
    data = context.machine(explanation)
    sections.append(Section("machine", "Machine, noise and notes", "machine.html.j2", data))
    data = {"downloads": _downloads(explanation, record)}
    return [*sections, Section("raw", "Raw numbers", "raw.html.j2", data)]


def html_report(explanation: Explanation, record_lines: Iterable[str] = (), warning: str = "") -> str:
    """The whole page as text. ``record_lines``: the JSON lines of the raw samples, carried for download.

    ``warning``: why the numbers are not as precise as asked; shown right under the verdict.
    """
    record = "".join(line if line.endswith("\n") else line + "\n" for line in record_lines).encode()
    if not warning and (explanation.busy or explanation.partial):
        warning = noise_reason(explanation)
    verdict = context.verdict(explanation, warning)
    return render_page(headline(explanation), verdict, explanation_sections(explanation, record))


def _waterfall(explanation: Explanation, prefix: str) -> Markup:
    """The waterfall as inline SVG in the page's colours; ``prefix`` keeps its ids apart from others."""
    from flashperf.plots.style import themed
    from flashperf.plots.waterfall import waterfall_svg

    return Markup(themed(waterfall_svg(explanation), prefix))


def _downloads(explanation: Explanation, record: bytes) -> list[dict[str, Any]]:
    """Links that hold their own file: the tables as CSV, all as JSON, the record of raw samples as gzip."""
    summary = json.dumps(to_json(explanation), indent=1, ensure_ascii=False).encode()
    files = [("flashperf-summary.json", "application/json", "Every number on this page, as JSON", summary)]
    for name, table in csv_tables(explanation).items():
        what = name.partition(".")[0]
        files.append((f"flashperf-{name}", "text/csv", f"The table of the {what}, as CSV", table.encode()))
    lines = record.count(b"\n")
    if record:
        packed = gzip.compress(record, mtime=0)
        said = f"All raw samples: {lines} JSON lines, {len(record) / 1e3:.0f} kB, gzip"
        files.append(("flashperf-record.jsonl.gz", "application/gzip", said, packed))
    links = []
    for name, kind, said, content in files:
        encoded = base64.b64encode(content).decode()
        carried = len(encoded) <= MAX_EMBEDDED_BYTES
        url = f"data:{kind};base64,{encoded}" if carried else ""
        links.append({"name": name, "said": said, "url": url})
    return links
