"""What the page's templates read: strings and small pictures, made from an explanation. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from flashperf.records import Attribution, Explanation, Interaction, Interval, Metric, Share
from flashperf.report.numbers import (
    SLOWS,
    UNCLEAR,
    bounded,
    bracketed,
    by_share,
    clean,
    effect,
    fixed,
    percent,
    places_for,
    quantity,
    scale,
    times,
)
from flashperf.report.ranges import Axis, Mark, axis_svg, range_svg
from flashperf.report.tables import better, environment_rows
from flashperf.report.terminal import footnotes
from flashperf.report.words import decimals, interaction_summary, pair_effect, reasons, worked

KINDS = {"slows": "slows", "helps": "helps", "can't tell": "unclear"}


def verdict(explanation: Explanation, warning: str) -> dict[str, Any]:
    """What stands at the top: subject, the ratio and what it rests on, the reasons, a warning."""
    found = explanation.attribution
    ratio = pair(found.total, decimals(found), "×")
    level = f"{found.total.confidence * 100:.3g} % interval {ratio['interval']}"
    basis = [level if bounded(found.total) else "no interval yet"]
    basis.append(worked(found))
    basis.append("busy machine" if explanation.busy else "quiet machine")
    if explanation.partial:
        basis.append(f"partial: {clean(found.stopped)}")
    return {
        "subject": clean(explanation.subject),
        "ratio": ratio["value"],
        "basis": basis,
        "sentences": reasons(explanation),
        "warning": warning,
    }


def metrics(rows: Sequence[Metric]) -> dict[str, Any]:
    """The table of both variants side by side, and why a value is missing."""
    table = []
    for metric in rows:
        present = [interval for interval in (metric.standard, metric.flash) if interval]
        divisor, unit = scale(metric.unit, (interval.value for interval in present))
        places = places_for(present, divisor)
        verdict = better(metric)[0]
        table.append(
            {
                "name": clean(metric.name),
                "unit": unit,
                "standard": quantity(metric.standard, divisor, places) if metric.standard else "",
                "flash": quantity(metric.flash, divisor, places) if metric.flash else "",
                "ratio": pair(metric.ratio) if metric.ratio else None,
                "verdict": verdict,
                "kind": {"better": "helps", "worse": "slows"}.get(verdict, "unclear"),
                "note": clean(metric.note),
            }
        )
    return {"rows": table}


def pair(interval: Interval, places: int = 2, sign: str = "") -> dict[str, str]:
    """A value and its interval as two strings, so that the page can set the interval smaller."""
    if math.isnan(interval.value):
        return {"value": "–", "interval": ""}
    value = fixed(interval.value, places + (interval.low == interval.high))
    if interval.low == interval.high:
        return {"value": sign + value, "interval": ""}
    span = (
        f"{fixed(interval.low, places)}–{fixed(interval.high, places)}"
        if bounded(interval)
        else "no interval"
    )
    return {"value": sign + value, "interval": span}


def attribution(explanation: Explanation) -> dict[str, Any]:
    """Rows of the attribution: share, percent, and alone, share and on top as ranges on one axis."""
    found = explanation.attribution
    places = decimals(found)
    shares = by_share(found.shares)
    axis = Axis.over(i for s in shares if s.active for i in (s.share, s.alone, s.on_top))
    several = sum(share.active for share in shares) > 1
    rows = [_row(share, places, axis, several) for share in shares]
    with_percent = any(share.percent for share in shares if share.active)
    gain = found.total.high < 1
    return {
        "rows": rows,
        "axis": axis_svg(axis),
        "total": pair(found.total, places, "×"),
        "with_percent": with_percent,
        "several": several,
        "of_what": "log speed-up" if gain else "log slowdown",
        "footnote": footnotes(found).replace("█ slows, ▒ helps; ", ""),
    }


def _row(share: Share, places: int, axis: Axis, several: bool) -> dict[str, Any]:
    """One switch; an inactive one has its levels and nothing else, a single active one only its share."""
    row: dict[str, Any] = {
        "switch": clean(share.switch),
        "standard": clean(share.standard),
        "flash": clean(share.flash),
        "active": share.active,
        "same": share.standard == share.flash,
    }
    if share.active:
        kind = KINDS[effect(share.share)]
        lanes = [
            ("alone", share.alone, "other"),
            ("share", share.share, kind),
            ("on top", share.on_top, "other"),
        ]
        lanes = lanes if several else lanes[1:2]
        row |= {
            "kind": kind,
            "effect": effect(share.share),
            "share": pair(share.share, places, "×"),
            "percent": percent(share.percent).replace("-", "−"),
            "alone": pair(share.alone, places),
            "on_top": pair(share.on_top, places),
            "ranges": range_svg(axis, [Mark(css, label, interval) for label, interval, css in lanes]),
        }
    return row


def interactions(found: Attribution) -> dict[str, Any]:
    """A matrix over the active switches: what was confirmed, what was tried, and dots for the rest."""
    names = [share.switch for share in by_share(found.shares) if share.active]
    pairs = {frozenset(pair.switches): pair for pair in found.interactions}
    confirmed = [pair for pair in found.interactions if pair.confirmed]
    rows = []
    for n, name in enumerate(names):
        cells = [
            _cell(pairs.get(frozenset((name, other)))) if m < n else None for m, other in enumerate(names)
        ]
        rows.append({"name": clean(name), "cells": cells})
    return {
        "names": [clean(name) for name in names[:-1]],
        "rows": rows[1:] if found.interactions else [],
        "summary": "" if confirmed else interaction_summary(found),
        "confirmed": [_sentence(pair) for pair in confirmed],
    }


def _cell(pair: Interaction | None) -> dict[str, str]:
    """A cell of the matrix; a pair that screening did not pick has a dot."""
    if pair is None:
        return {"kind": "none", "text": "·", "title": "not among the largest when screened"}
    ratio = pair_effect(pair)
    said = f"{' + '.join(map(clean, pair.switches))}: together / product of own effects {bracketed(ratio)}"
    if not pair.confirmed:
        return {"kind": "tried", "text": times(ratio.value), "title": said + ", not confirmed"}
    return {"kind": "more" if ratio.value > 1 else "less", "text": times(ratio.value), "title": said}


def _sentence(pair: Interaction) -> dict[str, str]:
    """A confirmed pair in words, with both backgrounds."""
    ratio = pair_effect(pair)
    return {
        "pair": " + ".join(map(clean, pair.switches)),
        "more": "more" if ratio.value > 1 else "less",
        "ratio": times(ratio.value),
        "interval": bracketed(ratio).partition(" ")[2].strip("[]").replace(" ", "–"),
        "standard": bracketed(pair.ratio_on_standard),
        "flash": bracketed(pair.ratio_on_flash),
    }


def predicted(found: Attribution) -> dict[str, Any]:
    """Measured share beside what the isolated kernels predict (warm and evicted caches), and what is left."""
    places = decimals(found)
    shares = [share for share in by_share(found.shares) if share.active and share.predicted]
    axis = Axis.over(i for s in shares for i in (s.share, s.predicted, s.predicted_cold))
    rows = []
    for share in shares:
        assert share.predicted is not None
        bracket = _hull(share.predicted, share.predicted_cold)
        marks = [Mark("measured", "measured", share.share), Mark("predicted", "predicted", bracket)]
        rows.append(
            {
                "switch": clean(share.switch),
                "measured": pair(share.share, places),
                "warm": pair(share.predicted, places),
                "cold": pair(share.predicted_cold, places) if share.predicted_cold else None,
                "unexplained": pair(share.unexplained, places) if share.unexplained else None,
                "telling": share.unexplained is not None and effect(share.unexplained) != UNCLEAR,
                "ranges": range_svg(axis, marks),
            }
        )
    total = found.sum_unexplained_log
    return {
        "rows": rows,
        "axis": axis_svg(axis),
        "with_cold": any(row["cold"] for row in rows),
        "sum_unexplained": None if total is None else f"{total:.2f}",
    }


def _hull(warm: Interval, cold: Interval | None) -> Interval:
    """Both predictions as one range: from the lowest end to the highest, with warm caches as the value."""
    both = [warm] if cold is None else [warm, cold]
    return Interval(warm.value, min(i.low for i in both), max(i.high for i in both), warm.confidence)


def machine(explanation: Explanation) -> dict[str, Any]:
    """The environment, how much was measured, how wide the intervals are, and every note."""
    found = explanation.attribution
    points = found.widest_half_width_percent
    width = found.widest_half_width_log
    widest = f"±{width:.3f} in log units" if math.isfinite(width) else "no interval yet"
    if points is not None:
        widest += (
            f", ±{points:.1f} points of the log {'slowdown' if effect(found.total) == SLOWS else 'speed-up'}"
        )
    work = [
        ("processes", str(found.workers)),
        ("runs", f"{found.runs}, of which {found.repeated} were repeated after a disturbance"),
        (
            "time",
            f"{found.seconds:.0f} s of {explanation.seconds:.0f} s (budget {explanation.budget_s:.0f} s)",
        ),
        ("stopped", clean(found.stopped)),
        ("widest share", widest),
        ("seed", str(explanation.seed)),
    ]
    notes = dict.fromkeys(map(clean, (*explanation.notes, *found.notes)))
    return {"environment": environment_rows(explanation.environment), "work": work, "notes": list(notes)}
