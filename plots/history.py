"""Benches over many saved runs: one small panel each, times relative to the first level, steps marked."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from flashperf.gate.history import History, Series
from flashperf.gate.text import percent, short_name
from flashperf.plots.style import PALETTE, figure, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH_IN, ROW_IN, TOP_IN = 8.0, 1.0, 0.55
MOST_PANELS = 16


def chosen(found: History) -> list[Series]:
    """The series that are drawn: those with steps first, largest last step first, at most MOST_PANELS."""

    def size(series: Series) -> float:
        return abs(np.log(series.steps[-1].factor)) if series.steps else 0.0

    return sorted(found.series, key=size, reverse=True)[:MOST_PANELS]


def history_plot(found: History, stem: Path) -> list[Path]:
    """Draw to ``stem``.svg and .png; the same history gives the same bytes."""
    panels = chosen(found)
    left_out = len(found.series) - len(panels)
    stepped = sum(bool(series.steps) for series in found.series)
    title = f"{len(found.series)} benches over {found.runs} runs: {stepped} changed level"
    more = f"; the {len(panels)} with the largest steps are drawn" if left_out else ""
    height_in = ROW_IN * len(panels) + TOP_IN + 0.5
    with figure(WIDTH_IN, height_in) as drawn:
        drawn.text(0.02, 1 - 0.3 / height_in, title + more, fontsize=11, fontweight="bold")
        for place, series in enumerate(panels):
            bottom = (height_in - TOP_IN - ROW_IN * (place + 1) + 0.12) / height_in
            axes = drawn.add_axes((0.08, bottom, 0.8, (ROW_IN - 0.42) / height_in))
            _panel(axes, series, last=place == len(panels) - 1)
        return save(drawn, stem, title, description(found, panels))


def _panel(axes: Axes, series: Series, *, last: bool) -> None:
    edges = [0, *(step.at for step in series.steps), len(series.points)]
    values = 100 * (series.values / np.median(series.values[: edges[1]]) - 1)
    runs = np.arange(1, len(values) + 1)
    axes.plot(runs, values, ".", color=PALETTE["unclear"], markersize=4)
    levels = [float(np.median(values[a:b])) for a, b in pairwise(edges)]
    for n, level in enumerate(levels):
        start, end = edges[n] + 0.5, edges[n + 1] + 0.5
        colour = PALETTE["total"] if n == 0 else PALETTE["slows" if level > levels[n - 1] else "helps"]
        axes.plot([start, end], [level, level], color=colour, linewidth=1.8)
        if n:
            axes.plot([start, start], [levels[n - 1], level], color=colour, linewidth=0.8)
    against = ", against the canary" if series.relative else ""
    axes.set_title(f"{short_name(series.name)}{against}", fontsize=8, loc="left", pad=3)
    if series.steps:
        factor = series.steps[-1].factor
        colour = PALETTE["slows" if factor > 1 else "helps"]
        note = percent(factor)
        axes.annotate(
            note,
            (1.01, levels[-1]),
            xycoords=("axes fraction", "data"),
            color=colour,
            fontsize=8,
            va="center",
        )
    span = max(2.0, float(np.ptp(values)))
    axes.set_ylim(float(values.min()) - 0.15 * span, float(values.max()) + 0.15 * span)
    axes.set_xlim(0.5, len(values) + 0.5)
    axes.tick_params(labelsize=7, length=2)
    axes.yaxis.set_major_formatter(lambda value, position: f"{value:+.0f} %" if value else "0")
    axes.locator_params(axis="y", nbins=3)
    axes.spines[["top", "right"]].set_visible(False)
    if last:
        axes.set_xlabel("saved run, oldest first", fontsize=8)
    else:
        axes.tick_params(labelbottom=False)


def description(found: History, panels: list[Series]) -> str:
    """For those who can't see it."""
    told = [
        f"{short_name(s.name)} {percent(s.steps[-1].factor)} from run {s.steps[-1].at + 1} on"
        for s in panels
        if s.steps
    ]
    return f"Times of {len(panels)} benches over {found.runs} saved runs. " + (
        "; ".join(told) or "No lasting change."
    )
