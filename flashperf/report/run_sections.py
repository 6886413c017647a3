"""The page of ``flashperf report``: any number of records, each with the sections that its kind has."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from flashperf.errors import UserError
from flashperf.records import Explanation, Interval
from flashperf.report import context
from flashperf.report.html import Section, explanation_sections, render_page
from flashperf.report.numbers import UNCLEAR, bracketed, clean, effect, places_for, quantity, scale
from flashperf.report.two_runs import RUN_SD, Change, TwoRuns, compare_runs
from flashperf.report.words import headline, noise_reason
from flashperf.store import Records, read_records

RECORD = "record.jsonl"
#: Kind of line that a record holds -> ``module:function`` that makes sections of the record.
MAKERS: dict[str, str] = {
    "point": "flashperf.report.record_sections:rooflines",
    "crossover": "flashperf.report.record_sections:crossover",
    "cases": "flashperf.report.record_sections:cases",
    "claims": "flashperf.report.record_sections:claims",
    "scenario": "flashperf.report.record_sections:scenario",
}


@dataclass(frozen=True)
class Run:
    """One record: what was read, and its explanation if it holds one."""

    path: Path
    records: Records
    explanation: Explanation | None


def read_run(path: Path) -> Run:
    """A record, or a folder that holds one. Raises UserError, with the kinds that are known, for others."""
    file = path / RECORD if path.is_dir() else path
    records = read_records(file)
    kinds = {line["kind"] for line in records.lines}
    if "explain" in kinds:
        from flashperf.explain import replay

        return Run(file, records, replay(file))
    if not kinds & MAKERS.keys():
        raise UserError(
            f"{file} holds nothing that a report shows; it shows records of: {', '.join(['explain', *MAKERS])}"
        )
    return Run(file, records, None)


def report_page(paths: Sequence[Path]) -> str:
    """One self-contained page of all runs: two explanations are compared first. Raises UserError, as reading does."""
    runs = [read_run(path) for path in paths]
    explained = [run for run in runs if run.explanation is not None]
    sections: list[Section] = []
    if len(explained) == 2:
        sections.append(_comparison(*explained))
    for n, run in enumerate(explained, start=1):
        assert run.explanation is not None
        name = str(n) if len(explained) > 1 else ""
        sections += explanation_sections(run.explanation, run.path.read_bytes(), name)
    sections[-2:-2] = [
        section for run in runs for section in _made(run)
    ]  # before the machine and raw numbers
    return render_page(*_verdict(explained, sections), _told_apart(sections))


def _told_apart(sections: Sequence[Section]) -> list[Section]:
    """The sections with anchors that differ: the second ``cases`` is ``cases-2``."""
    seen: Counter[str] = Counter()
    apart = []
    for section in sections:
        seen[section.anchor] += 1
        count = seen[section.anchor]
        if count > 1:
            label = f"{section.label or section.anchor.capitalize()} {count}"
            section = replace(section, anchor=f"{section.anchor}-{count}", label=label)
        apart.append(section)
    return apart


def _made(run: Run) -> list[Section]:
    kinds = dict.fromkeys(line["kind"] for line in run.records.lines if line["kind"] in MAKERS)
    makers = dict.fromkeys(MAKERS[kind] for kind in kinds)
    return [section for maker in makers for section in _function(maker)(run.records)]


def _function(name: str) -> Callable[[Records], list[Section]]:
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)


def _verdict(explained: Sequence[Run], sections: Sequence[Section]) -> tuple[str, dict[str, Any]]:
    """Title and what stands under it: of the last explanation, or what the page holds."""
    if not explained or explained[-1].explanation is None:
        titles = list(dict.fromkeys(section.title for section in sections))
        whole = [title for title in titles if not any(title.startswith(f"{other}: ") for other in titles)]
        title = " · ".join(whole) or "Nothing measured"
        return title, {"subject": "", "ratio": "", "basis": [], "sentences": [], "warning": ""}
    last = explained[-1].explanation
    warning = noise_reason(last) if last.busy or last.partial else ""
    return headline(last), context.verdict(last, warning)


def _comparison(before: Run, after: Run) -> Section:
    assert before.explanation is not None
    assert after.explanation is not None
    found = compare_runs(before.explanation, after.explanation)
    data = {
        "before": f"{clean(str(before.path))}, {before.records.header.get('time', '')}",
        "after": f"{clean(str(after.path))}, {after.records.header.get('time', '')}",
        "differences": [clean(text) for text in found.differences],
        "shares": [_ratio_row(change) for change in (found.total, *found.shares)],
        "metrics": _metric_rows(found, after.explanation),
        "run_sd": f"{RUN_SD * 100:g}",
    }
    return Section("comparison", "Two runs compared", "two_runs.html.j2", data)


def _ratio_row(change: Change) -> dict[str, Any]:
    sides = {"before": change.before, "after": change.after}
    return _row(change, "", {name: bracketed(side) if side else "–" for name, side in sides.items()})


def _metric_rows(found: TwoRuns, after: Explanation) -> list[dict[str, Any]]:
    units = {metric.name: metric.unit for metric in after.metrics}
    rows = []
    for change in found.metrics:
        sides = [side for side in (change.before, change.after) if side is not None]
        if not sides:
            continue
        divisor, unit = scale(units[change.name.rpartition(",")[0]], (side.value for side in sides))
        places = places_for(sides, divisor)
        texts = {"before": change.before, "after": change.after}
        rows.append(
            _row(change, unit, {name: quantity(side, divisor, places) for name, side in texts.items()})
        )
    return rows


def _row(change: Change, unit: str, texts: dict[str, str]) -> dict[str, Any]:
    reading = _reading(change.ratio)
    kind = {"larger": "slows", "smaller": "helps"}.get(reading, "unclear")
    pair = context.pair(change.ratio) if change.ratio else None
    return {
        "name": clean(change.name),
        "unit": unit,
        **texts,
        "ratio": pair,
        "reading": reading,
        "kind": kind,
    }


def _reading(ratio: Interval | None) -> str:
    """``larger``, ``smaller``, ``same`` for exact values, or that no change is clear."""
    if ratio is None:
        return ""
    if ratio.low == ratio.high == 1:
        return "same"
    verdict = effect(ratio)
    return "no clear change" if verdict == UNCLEAR else "larger" if ratio.low > 1 else "smaller"
