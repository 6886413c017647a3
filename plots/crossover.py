"""A crossover: the ratio of two variants along an axis, with the interval in which they change places."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flashperf.crossover.result import CrossoverResult, advice_words
from flashperf.plots.style import PALETTE, figure, save, svg_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH_IN, HEIGHT_IN = 7.6, 4.1
_TICKS = (0.05, 0.1, 0.2, 0.33, 0.5, 0.67, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2, 3, 5, 10, 20)
_MOST_TICKS = 9


def crossover_picture(result: CrossoverResult, stem: Path) -> list[Path]:
    """Draw a crossover to ``stem``.svg and .png; the same result gives the same bytes."""
    with figure(WIDTH_IN, HEIGHT_IN) as drawn:
        _draw(drawn, result)
        return save(drawn, stem, title(result), description(result))


def crossover_svg(result: CrossoverResult) -> str:
    """The same picture as SVG text, to stand inside a page."""
    with figure(WIDTH_IN, HEIGHT_IN) as drawn:
        _draw(drawn, result)
        return svg_text(drawn, title(result), description(result), text_as_paths=False)


def title(result: CrossoverResult) -> str:
    """Who crosses whom."""
    return f"{result.names[1]} against {result.names[0]}, by {result.axis}"


def description(result: CrossoverResult) -> str:
    """What the picture shows, for those who can't see it."""
    return f"{result.subject}: {result.answer}. Use {advice_words(result)}."


def _draw(drawn: Figure, result: CrossoverResult) -> None:
    height = drawn.get_figheight()
    drawn.text(0.02, 1 - 0.25 / height, title(result), size=13, weight="bold", va="center")
    drawn.text(0.02, 1 - 0.52 / height, _subtitle(result), size=9, color=PALETTE["muted"], va="center")
    axes = drawn.add_axes((0.1, 0.75 / height, 0.87, 1 - 1.62 / height))
    _axes(axes, result)
    for crossing in result.finding.crossings:
        axes.axvspan(crossing.low, crossing.high, color=PALETTE["unclear"], alpha=0.28, lw=0)
        if crossing.value is not None:
            axes.axvline(crossing.value, color=PALETTE["ink"], lw=1)
    if result.finding.unknown:
        axes.axvspan(*result.finding.unknown, color=PALETTE["unclear"], alpha=0.18, lw=0)
    points = result.finding.scan
    sizes, values = [p.size for p in points], [p.ratio.value for p in points]
    axes.plot(sizes, values, color=PALETTE["total"], lw=1, zorder=2)
    for point in points:
        colour = PALETTE[{1: "slows", -1: "helps", 0: "unclear"}[point.sign]]
        axes.plot(
            (point.size, point.size), (point.ratio.low, point.ratio.high), color=colour, lw=1.6, zorder=3
        )
        axes.plot(point.size, point.ratio.value, "o", color=colour, ms=5, zorder=4)
    refined = [(t.size, t.b_s / t.a_s) for t in result.times if t.size not in sizes]
    axes.plot(*zip(*refined, strict=True), "|", color=PALETTE["ink"], ms=6, zorder=5) if refined else None
    _sides(axes, result)
    said = "dots: scan, 95 % interval" + ("; ticks: refining" if refined else "")
    said += "; band: where they cross" if result.finding.crossings else ""
    drawn.text(0.97, 0.16 / height, said, size=8, color=PALETTE["muted"], ha="right", va="center")


def _subtitle(result: CrossoverResult) -> str:
    return f"{result.subject}: use {advice_words(result)}"


def _axes(axes: Axes, result: CrossoverResult) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    low, high = result.range
    ends = [e for p in result.finding.scan for e in (p.ratio.low, p.ratio.high) if math.isfinite(e) and e > 0]
    reach = math.log(max([*ends, 1.1]) / min([*ends, 0.9]))
    room = math.exp(0.13 * reach)  # for the words at the top and the bottom
    bottom, top = min([*ends, 0.9]) / room, max([*ends, 1.1]) * room
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(low / 1.15, high * 1.15)
    axes.set_ylim(bottom, top)
    axes.yaxis.set_major_locator(FixedLocator(_ticks(bottom, top)))
    axes.xaxis.set_major_locator(FixedLocator(_sizes(low, high)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
    axes.tick_params(length=0, labelsize=9, colors=PALETTE["muted"])
    axes.grid(color=PALETTE["rule"], lw=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)
    axes.axhline(1, color=PALETTE["muted"], lw=1)
    axes.set_xlabel(result.axis, size=9, color=PALETTE["muted"])
    axes.set_ylabel(f"time of {result.names[1]} / {result.names[0]}", size=9, color=PALETTE["muted"])


def _ticks(bottom: float, top: float) -> list[float]:
    shown = [tick for tick in _TICKS if bottom <= tick <= top]
    while len(shown) > _MOST_TICKS:
        shown = [tick for n, tick in enumerate(shown) if tick == 1 or n % 2 == shown.index(1) % 2]
    return shown


def _sizes(low: int, high: int) -> Sequence[int]:
    """Powers of two inside the range, at most ten."""
    powers = [1 << n for n in range(40) if low <= 1 << n <= high]
    step = -(-len(powers) // 10)
    return powers[::step] if powers else [low, high]


def _sides(axes: Axes, result: CrossoverResult) -> None:
    """Who is faster above and below the line of equal times."""
    a, b = result.names
    at = {"transform": axes.transAxes, "size": 8.5, "ha": "left"}
    box = {"facecolor": PALETTE["paper"], "lw": 0, "pad": 1.2, "alpha": 0.85}
    axes.text(0.008, 0.975, f"↑ {a} is faster", va="top", color=PALETTE["slows"], bbox=box, **at)  # type: ignore[arg-type]
    axes.text(0.008, 0.025, f"↓ {b} is faster", va="bottom", color=PALETTE["helps"], bbox=box, **at)  # type: ignore[arg-type]
