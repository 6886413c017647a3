"""The waterfall from Standard to Flash: each switch a step on a ratio axis, the total at the end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashperf.plots.style import PALETTE, figure, save, svg_text
from flashperf.records import Explanation, Interval
from flashperf.report.numbers import HELPS, SLOWS, UNCLEAR, bounded, by_share, clean, effect, fixed, times
from flashperf.report.words import decimals, headline, words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH_IN = 8.0
ROW_IN = 0.44
TOP_IN, BOTTOM_IN = 0.95, 0.75
_COLOURS = {SLOWS: PALETTE["slows"], HELPS: PALETTE["helps"], UNCLEAR: PALETTE["unclear"]}
_TICKS = (  # from close to coarse; the first that gives at most _MAX_TICKS on the axis is used
    tuple(round(0.7 + 0.05 * n, 2) for n in range(15)),
    tuple(round(0.1 * n, 1) for n in range(2, 21)),
    (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 7, 10),
    (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100),
    tuple(10.0**n for n in range(-9, 10)),
)
_MAX_TICKS = 7


@dataclass(frozen=True)
class Step:
    """One bar: from ``start`` to ``end``, both as ratios to Standard; ``factor`` is end / start."""

    name: str
    detail: str
    start: float
    end: float
    factor: Interval
    colour: str


def steps(explanation: Explanation) -> list[Step]:
    """The active switches, largest slowdown first, then the total from 1. Each starts where the last ends."""
    attribution = explanation.attribution
    done: list[Step] = []
    at = 1.0
    for share in by_share(attribution.shares):
        if not share.active or not share.share.value > 0 or not math.isfinite(share.share.value):
            continue
        levels = f"{clean(share.standard)} → {clean(share.flash)}"
        end, colour = at * share.share.value, _COLOURS[effect(share.share)]
        done.append(Step(clean(share.switch), levels, at, end, share.share, colour))
        at = end
    total = attribution.total
    if total.value > 0 and math.isfinite(total.value):
        done.append(Step("Flash", "all switches", 1.0, total.value, total, PALETTE["total"]))
    return done


def waterfall(explanation: Explanation, path_stem: Path) -> list[Path]:
    """Draw the waterfall to ``path_stem``.svg and .png; the same explanation gives the same bytes."""
    rows = steps(explanation)
    with figure(WIDTH_IN, _height_in(rows)) as drawn:
        _draw(drawn, explanation, rows, titled=True)
        return save(drawn, path_stem, headline(explanation), description(explanation))


def waterfall_svg(explanation: Explanation) -> str:
    """The same picture without its headline as SVG text, to stand inside a page."""
    rows = steps(explanation)
    with figure(WIDTH_IN, _height_in(rows) - 0.5) as drawn:
        _draw(drawn, explanation, rows, titled=False)
        return svg_text(
            drawn, "Waterfall from Standard to Flash", description(explanation), text_as_paths=False
        )


def description(explanation: Explanation) -> str:
    """What the picture shows, for those who can't see it."""
    parts = [f"{row.name} {times(row.factor.value)}" for row in steps(explanation)]
    return f"{words(explanation)[0]} From Standard, step by step: {', '.join(parts)}."


def _height_in(rows: Sequence[Step]) -> float:
    return TOP_IN + BOTTOM_IN + ROW_IN * (len(rows) + 1)


def _draw(drawn: Figure, explanation: Explanation, rows: Sequence[Step], *, titled: bool) -> None:
    """Title and legend above, one row per step, the axis and the footnote below."""
    height = drawn.get_figheight()
    top = TOP_IN if titled else TOP_IN - 0.5
    axes = drawn.add_axes((0.27, BOTTOM_IN / height, 0.71, 1 - (top + BOTTOM_IN) / height))
    _axis(axes, rows)
    _row_label(axes, 0, "Standard", "")
    axes.plot([1, 1], [-0.32, 0.32], color=PALETTE["total"], lw=3, solid_capstyle="butt")
    for n, row in enumerate(rows, start=1):
        _row(axes, n, row, decimals(explanation.attribution), last=n == len(rows))
    if titled:
        drawn.text(0.02, 1 - 0.32 / height, headline(explanation), size=14, weight="bold", va="center")
        drawn.text(0.02, 1 - 0.62 / height, clean(explanation.subject), color=PALETTE["muted"], va="center")
    _legend(drawn, rows, 1 - (top - 0.24) / height)
    drawn.text(0.02, 0.16 / height, _footnote(explanation), size=8.5, color=PALETTE["muted"], va="center")


def _axis(axes: Axes, rows: Sequence[Step]) -> None:
    """A log axis of time against Standard, with room for the labels at the right of the bars."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    low, high = _limits(rows)
    span = math.log(high / low)
    left, right = low * math.exp(-0.04 * span), high * math.exp(0.4 * span)
    axes.set_xscale("log")
    axes.set_xlim(left, right)
    axes.set_ylim(len(rows) + 0.6, -0.6)
    axes.xaxis.set_major_locator(FixedLocator(_ticks(left, high * math.exp(0.1 * span))))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(NullLocator())
    axes.tick_params(axis="x", length=0, labelsize=9)
    axes.grid(axis="x", color=PALETTE["rule"], lw=0.7)
    axes.set_axisbelow(True)
    for side in ("left", "right", "top", "bottom"):
        axes.spines[side].set_visible(False)
    axes.axvline(1, color=PALETTE["muted"], lw=1)
    axes.set_xlabel("time against Standard (log scale)", size=9, color=PALETTE["muted"])


def _ticks(low: float, high: float) -> list[float]:
    """Round ratios between the ends, at most _MAX_TICKS, from the closest list that reaches the ends."""
    for candidates in _TICKS:
        shown = [tick for tick in candidates if low <= tick <= high]
        if candidates[0] <= low * 1.1 and candidates[-1] >= high / 1.1 and len(shown) <= _MAX_TICKS:
            return shown
    return shown


def _limits(rows: Sequence[Step]) -> tuple[float, float]:
    """Smallest and largest ratio that is drawn, at least 10 % apart."""
    ends = [1.0, 1.05, 1 / 1.05]
    for row in rows:
        ends += [row.start, row.end]
        if bounded(row.factor):
            ends += [row.start * row.factor.low, row.start * row.factor.high]
    return min(ends), max(ends)


def _row(axes: Axes, n: int, row: Step, places: int, *, last: bool) -> None:
    """A bar with its whisker, its factor at the right, and a line down to where the next one starts."""
    low, high = sorted((row.start, row.end))
    axes.barh(n, high - low, left=low, height=0.62, color=row.colour, lw=0)
    if not last:
        axes.plot([row.end, row.end], [n + 0.31, n + 0.69], color=PALETTE["muted"], lw=0.8)
    if bounded(row.factor):
        whisker = (row.start * row.factor.low, row.start * row.factor.high)
        high = max(high, whisker[1])
        for colour, width in ((PALETTE["paper"], 2.4), (PALETTE["ink"], 1.2)):  # a light edge on dark bars
            axes.plot(whisker, (n, n), color=colour, lw=width)
            for end in whisker:
                axes.plot((end, end), (n - 0.13, n + 0.13), color=colour, lw=width)
    _factor_label(axes, n, high, row.factor, places, bold=last)
    _row_label(axes, n, row.name, row.detail, bold=last)


def _factor_label(axes: Axes, n: int, x: float, factor: Interval, places: int, *, bold: bool) -> None:
    """``×1.21`` and, smaller, its interval, at the right of a bar that ends at x."""
    place: dict[str, Any] = {"textcoords": "offset points", "va": "center"}
    place["bbox"] = {"facecolor": PALETTE["paper"], "lw": 0, "pad": 1.5}
    weight = "bold" if bold else "normal"
    text = axes.annotate(times(factor.value, places), (x, n), (7, 0), weight=weight, **place)
    said = (
        f"{fixed(factor.low, places)} to {fixed(factor.high, places)}" if bounded(factor) else "no interval"
    )
    axes.annotate(said, (1, 0.5), (7, 0), xycoords=text, size=8.5, color=PALETTE["muted"], **place)


def _row_label(axes: Axes, n: int, name: str, detail: str, *, bold: bool = True) -> None:
    """The switch and, smaller under it, its levels, at the left of the axis."""
    shift = 0.17 if detail else 0.0
    place: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "ha": "right", "va": "center"}
    axes.text(-0.02, n - shift, _short(name, 23), weight="bold" if bold else "normal", **place)
    axes.text(-0.02, n + 0.24, _short(detail, 30), size=8, color=PALETTE["muted"], **place)


def _short(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def _legend(drawn: Figure, rows: Sequence[Step], y: float) -> None:
    """The colours that occur, and the whisker."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    said = {SLOWS: "slows", HELPS: "helps", UNCLEAR: "can't tell from 1"}
    used = [verdict for verdict in said if any(row.colour == _COLOURS[verdict] for row in rows)]
    handles: list[Any] = [Patch(facecolor=_COLOURS[verdict], label=said[verdict], lw=0) for verdict in used]
    handles.append(Line2D([], [], color=PALETTE["ink"], lw=1.2, marker="|", ms=7, label="95 % interval"))
    drawn.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(0.262, y),
        ncols=len(handles),
        frameon=False,
        fontsize=9,
        labelcolor=PALETTE["muted"],
        handlelength=1.1,
        handleheight=0.8,
        handletextpad=0.5,
        columnspacing=1.8,
        numpoints=2,
        borderaxespad=0,
    )


def _footnote(explanation: Explanation) -> str:
    """That the steps multiply to the total; which switches are left out, and why."""
    said = "The steps multiply to the measured total."
    idle = [clean(share.switch) for share in explanation.attribution.shares if not share.active]
    return said + (f" Left out, as they change nothing that runs here: {', '.join(idle)}." if idle else "")
