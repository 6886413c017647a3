"""Rooflines: measured kernels under the roofs of their machine, one picture per mechanism and a page of all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flashperf.plots.marks import ERROR, LOOKS, Looks, draw_points, key_of, number_points
from flashperf.plots.plane import draw_plane
from flashperf.plots.style import PALETTE, figure, save, svg_text
from flashperf.roofline import is_bound, short_words
from flashperf.roofs.points import Point, RooflineRun

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH_IN = 9.6
ROW_IN = 0.215
LEAST_HEIGHT_IN = 4.6
COLUMNS = 3
#: Where the list beside the plane has its columns, inches from the left: number, marker, variant, warm, cold.
NUMBER_IN, MARKER_IN, VARIANT_IN, WARM_IN, COLD_IN = 5.29, 5.38, 5.47, 8.09, 9.5


def roofline_picture(run: RooflineRun, mechanism: str, stem: Path) -> list[Path]:
    """Draw one mechanism to ``stem``.svg and .png; the same run gives the same bytes."""
    with figure(WIDTH_IN, _height_in(run, mechanism)) as drawn:
        _draw_one(drawn, run, mechanism)
        return save(drawn, stem, title(mechanism), description(run, mechanism))


def roofline_svg(run: RooflineRun, mechanism: str) -> str:
    """The same picture as SVG text, to stand inside a page."""
    with figure(WIDTH_IN, _height_in(run, mechanism)) as drawn:
        _draw_one(drawn, run, mechanism)
        return svg_text(drawn, title(mechanism), description(run, mechanism), text_as_paths=False)


def roofline_page(run: RooflineRun, stem: Path) -> list[Path]:
    """Small multiples: every mechanism that does arithmetic, on the same axes."""
    names = [name for name in run.mechanisms if _drawable(run.of(name))]
    rows = max(1, math.ceil(len(names) / COLUMNS))
    with figure(WIDTH_IN, 0.75 + 2.45 * rows) as drawn:
        _draw_page(drawn, run, names, rows)
        said = " ".join(description(run, name) for name in names)
        return save(drawn, stem, "Rooflines of all mechanisms", said)


def title(mechanism: str) -> str:
    """The headline of a picture."""
    return f"{mechanism}: measured kernels under their roofs"


def description(run: RooflineRun, mechanism: str) -> str:
    """What the picture shows, for those who can't see it."""
    parts = [f"{_name(p)} ({p.cache}): {p.words(run.roofs)}" for p in run.listed(mechanism)]
    return f"{mechanism}: {'; '.join(parts)}."


def _drawable(points: Sequence[Point]) -> list[Point]:
    """Those with a place on the plane: a kernel without arithmetic has none."""
    return [point for point in points if point.cost.flops > 0 and point.cost.bytes > 0]


def _name(point: Point) -> str:
    return f"{point.case.variant} {point.size}"


def _looks(points: Sequence[Point]) -> Looks:
    """Colour and marker of each variant."""
    variants = sorted(
        {p.case.variant: p.role for p in points}.items(), key=lambda item: item[1] != "standard"
    )
    return {name: LOOKS[n % len(LOOKS)] for n, (name, _) in enumerate(variants)}


def _height_in(run: RooflineRun, mechanism: str) -> float:
    warm = [p for p in run.of(mechanism) if not p.is_cold]
    return max(LEAST_HEIGHT_IN, 1.5 + ROW_IN * (1 + len(warm) + len({p.size for p in warm})))


def _draw_one(drawn: Figure, run: RooflineRun, mechanism: str) -> None:
    height = drawn.get_figheight()
    axes = drawn.add_axes((0.68 / WIDTH_IN, 0.78 / height, 4.3 / WIDTH_IN, 1 - 1.26 / height))
    points = _drawable(run.of(mechanism))
    looks = _looks(run.of(mechanism))
    drawn.text(0.015, 1 - 0.25 / height, title(mechanism), size=13, weight="bold", va="center")
    numbers = {key: n + 1 for n, key in enumerate(dict.fromkeys(key_of(p) for p in run.listed(mechanism)))}
    threads = run.roofs.threads_for(max((p.wants_threads for p in points), default=1))
    plane = draw_plane(axes, run, points, size=7.5, threads=threads)
    draw_points(plane, run, points, looks, size=5.5)
    number_points(plane, points, numbers)
    _list(drawn, run, mechanism, looks, numbers)
    _legend(drawn, points, threads)


def _draw_page(drawn: Figure, run: RooflineRun, names: list[str], rows: int) -> None:
    height = drawn.get_figheight()
    everything = _drawable(run.points)
    drawn.text(
        0.015, 1 - 0.25 / height, "Every mechanism under the same roofs", size=13, weight="bold", va="center"
    )
    threads = ", one thread" if run.roofs.backend == "cpu" else ""
    said = f"{run.roofs.environment.device}{threads}; filled: warm caches, hollow: cold"
    drawn.text(0.015, 1 - 0.5 / height, said, size=9, color=PALETTE["muted"], va="center")
    for n, name in enumerate(names):
        row, column = divmod(n, COLUMNS)
        left, bottom = 0.065 + column * 0.318, (0.5 + 2.45 * (rows - 1 - row)) / height
        axes = drawn.add_axes((left, bottom, 0.275, 1.72 / height))
        plane = draw_plane(axes, run, everything, size=6, small=_drawable(run.of(name)))
        draw_points(plane, run, _drawable(run.of(name)), _looks(run.of(name)), size=4)
        axes.set_title(name, loc="left", size=10, weight="bold", pad=4)
        if column:
            axes.set_ylabel("")
        if n + COLUMNS < len(names):
            axes.set_xlabel("")
        _small_legend(axes, _looks(run.of(name)))


def _list(
    drawn: Figure, run: RooflineRun, mechanism: str, looks: Looks, numbers: dict[tuple[str, str], int]
) -> None:
    """The list at the right: number, variant, the distance to the roof with warm and cold caches, size by size."""
    height, listed = drawn.get_figheight(), run.listed(mechanism)
    cold = {key_of(p): p for p in listed if p.is_cold}
    y, seen = 1 - 0.62 / height, ""
    for at_in, said in ((WARM_IN, "warm caches"), (COLD_IN, "cold caches" if cold else "")):
        drawn.text(at_in / WIDTH_IN, y, said, size=7.5, weight="bold", ha="right", va="center")
    markers: dict[tuple[str, str], list[float]] = {}
    for point in (p for p in listed if not p.is_cold):
        if point.size != seen:
            seen = point.size
            y -= 0 if len(markers) == 0 and len(seen) < 32 else ROW_IN / height
            drawn.text(5.2 / WIDTH_IN, y, seen, size=8, color=PALETTE["muted"], va="center")
        y -= ROW_IN / height
        markers.setdefault(looks[point.case.variant], []).append(y)
        number = str(numbers[key_of(point)])
        drawn.text(NUMBER_IN / WIDTH_IN, y, number, size=8, weight="bold", ha="right", va="center")
        drawn.text(VARIANT_IN / WIDTH_IN, y, point.case.variant, size=8, va="center")
        _place(drawn, run, point, WARM_IN, y)
        if key_of(point) in cold:
            _place(drawn, run, cold[key_of(point)], COLD_IN, y)
    _list_markers(drawn, markers)


def _place(drawn: Figure, run: RooflineRun, point: Point, at_in: float, y: float) -> None:
    """The words of a point, grey where it comes near no roof; without arithmetic it isn't on the plane."""
    place = point.place(run.roofs)
    colour = ERROR if place.model_error else PALETTE["ink" if is_bound(place) else "muted"]
    said = short_words(place, point.roof(run.roofs)) + ("" if point.cost.flops else " (no FLOPs)")
    drawn.text(at_in / WIDTH_IN, y, said, size=7, ha="right", va="center", color=colour)


def _list_markers(drawn: Figure, markers: dict[tuple[str, str], list[float]]) -> None:
    from matplotlib.lines import Line2D

    for (colour, marker), rows in markers.items():
        places = [MARKER_IN / WIDTH_IN] * len(rows)
        drawn.add_artist(
            Line2D(places, rows, marker=marker, color=colour, ms=5, lw=0, transform=drawn.transFigure)
        )


def _legend(drawn: Figure, points: Sequence[Point], threads: int) -> None:
    """What the marks and the percentages mean, in two lines under the plane."""
    cold = any(p.is_cold for p in points)
    marks = ["filled: warm caches" + (", hollow: cold" if cold else "")]
    marks += ["bar: 95 % interval", "dots: to the least bytes", "arrow: standard to variant"]
    if threads > 1:
        marks.append(f"roofs of {threads} threads")
    words = (
        "grey: near no roof; %: of the least time, in which a level is charged only what caches inside it can't "
        "hold, and reads at the rate of loads: not the distance to a line"
    )
    for n, said in enumerate(("; ".join(marks), words)):
        y = (0.26 - 0.15 * n) / drawn.get_figheight()
        drawn.text(0.015, y, said, size=7.2, color=PALETTE["muted"], va="center")


def _small_legend(axes: Axes, looks: Looks) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], marker=m, color=c, lw=0, ms=4, label=name) for name, (c, m) in looks.items()]
    axes.legend(
        handles=handles, loc="lower right", fontsize=6.5, frameon=True, framealpha=0.85, edgecolor="none",
        handletextpad=0.2, borderpad=0.2, labelspacing=0.25, borderaxespad=0.2,
    )  # fmt: skip
