"""Small pictures of intervals for table cells: inline SVG, drawn with the page's colours."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from flashperf.records import Interval
from flashperf.report.numbers import bounded, bracketed

WIDTH_PX, LANE_PX = 240, 13
_TICKS = (
    0.05,
    0.1,
    0.2,
    0.3,
    0.5,
    0.6,
    0.7,
    0.8,
    0.9,
    0.95,
    1,
    1.05,
    1.1,
    1.2,
    1.3,
    1.5,
    1.75,
    2,
    2.5,
    3,
    4,
    6,
    10,
    20,
)
_LABEL_PX = 28  # room that a tick label takes


@dataclass(frozen=True)
class Axis:
    """A log axis from low to high, both ratios, over ``WIDTH_PX`` pixels."""

    low: float
    high: float

    @staticmethod
    def over(intervals: Iterable[Interval | None]) -> Axis:
        """An axis that holds all bounded intervals and 1, at least 10 % wide, with a margin."""
        ends = [1.05, 1 / 1.05]
        for interval in intervals:
            if interval is None or not interval.value > 0 or not math.isfinite(interval.value):
                continue
            ends += [interval.low, interval.high] if bounded(interval) else [interval.value]
        margin = 0.06 * math.log(max(ends) / min(ends))
        return Axis(min(ends) * math.exp(-margin), max(ends) * math.exp(margin))

    def x(self, ratio: float) -> float:
        """Pixels from the left."""
        return WIDTH_PX * math.log(ratio / self.low) / math.log(self.high / self.low)

    def ticks(self) -> list[float]:
        """Round ratios inside the axis that leave room for their labels; 1 is always among them."""
        shown = [1.0]
        for tick in sorted(_TICKS, key=lambda tick: abs(math.log(tick))):
            inside = _LABEL_PX / 2 <= self.x(tick) <= WIDTH_PX - _LABEL_PX / 2
            if inside and all(abs(self.x(tick) - self.x(other)) >= _LABEL_PX for other in shown):
                shown.append(tick)
        return sorted(shown)


@dataclass(frozen=True)
class Mark:
    """One lane: an interval as a line with a dot at its value. ``kind`` is the CSS class that colours it."""

    kind: str
    label: str
    interval: Interval | None


def axis_svg(axis: Axis) -> Markup:
    """The tick labels over a column of ranges; hidden from screen readers, which read the numbers."""
    labels = [f'<text x="{axis.x(t):.1f}" y="11" text-anchor="middle">{t:g}</text>' for t in axis.ticks()]
    return Markup(f'{_open(14)} aria-hidden="true">{"".join(labels)}</svg>')


def range_svg(axis: Axis, marks: Sequence[Mark]) -> Markup:
    """A lane per mark under a shared axis, with a line at 1; the title says the numbers."""
    present = [mark for mark in marks if mark.interval and mark.interval.value > 0]
    height = LANE_PX * len(marks)
    parts = [_line(axis.x(t), 0, axis.x(t), height, "one" if t == 1 else "tick") for t in axis.ticks()]
    for lane, mark in enumerate(marks):
        if mark in present:
            parts += _lane(axis, mark, LANE_PX * (lane + 0.5))
    said = "; ".join(f"{mark.label} {bracketed(mark.interval)}" for mark in present if mark.interval)
    return Markup(f'{_open(height)} role="img"><title>{escape(said)}</title>{"".join(parts)}</svg>')


def _open(height: int) -> str:
    return f'<svg class="range" viewBox="0 0 {WIDTH_PX} {height}" width="{WIDTH_PX}" height="{height}"'


def _lane(axis: Axis, mark: Mark, y: float) -> list[str]:
    interval = mark.interval
    assert interval is not None
    dot = f'<circle cx="{axis.x(interval.value):.1f}" cy="{y:.1f}" r="3.2" class="{mark.kind}"/>'
    if not bounded(interval):
        return [dot]
    return [_line(axis.x(interval.low), y, axis.x(interval.high), y, mark.kind), dot]


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'
