"""Rooflines: measured kernels under the roofs of their machine, one picture per mechanism and a page of all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashperf.plots.plane import LOOKS, Looks, draw_plane, draw_points, key_of, number_points
from flashperf.plots.style import PALETTE, figure, save, svg_text
from flashperf.roofs.points import Point, RooflineRun

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH_IN = 9.2
ROW_IN = 0.215
LEAST_HEIGHT_IN = 4.6
COLUMNS = 3


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
    return max(LEAST_HEIGHT_IN, 1.15 + ROW_IN * (len(warm) + len({p.size for p in warm})))


def _draw_one(drawn: Figure, run: RooflineRun, mechanism: str) -> None:
    height = drawn.get_figheight()
    axes = drawn.add_axes((0.075, 0.52 / height, 0.5, 1 - 1.0 / height))
    points = _drawable(run.of(mechanism))
    looks = _looks(run.of(mechanism))
    drawn.text(0.015, 1 - 0.25 / height, title(mechanism), size=13, weight="bold", va="center")
    numbers = {key: n + 1 for n, key in enumerate(dict.fromkeys(key_of(p) for p in run.listed(mechanism)))}
    threads = run.roofs.threads_for(max((p.wants_threads for p in points), default=1))
    labels = draw_plane(axes, run, points, labelled=True, threads=threads)
    draw_points(axes, run, points, looks, size=5.5)
    number_points(axes, points, numbers, labels)
    _words(drawn, run, mechanism, looks, numbers)
    _legend(axes, points, threads)


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
        draw_plane(axes, run, everything, labelled=False)
        draw_points(axes, run, _drawable(run.of(name)), _looks(run.of(name)), size=4)
        axes.set_title(name, loc="left", size=10, weight="bold", pad=4)
        if column:
            axes.set_ylabel("")
        if n + COLUMNS < len(names):
            axes.set_xlabel("")
        _small_legend(axes, _looks(run.of(name)))


def _words(
    drawn: Figure,
    run: RooflineRun,
    mechanism: str,
    looks: Looks,
    numbers: dict[tuple[str, str], int],
) -> None:
    """The list at the right: number, variant, the distance to the roof in words, size by size."""
    from matplotlib.lines import Line2D

    height = drawn.get_figheight()
    y, seen = 1 - 0.62 / height, ""
    for point in (p for p in run.listed(mechanism) if not p.is_cold):
        colour, marker = looks[point.case.variant]
        if point.size != seen:
            seen = point.size
            drawn.text(0.6, y, seen, size=8, color=PALETTE["muted"], va="center")
            y -= ROW_IN / height
        drawn.add_artist(
            Line2D([0.632], [y], marker=marker, color=colour, ms=5, lw=0, transform=drawn.transFigure)
        )
        drawn.text(0.618, y, str(numbers[key_of(point)]), size=8, weight="bold", ha="right", va="center")
        drawn.text(0.645, y, point.case.variant, size=8.5, va="center")
        drawn.text(0.985, y, _said(point, run), size=8, ha="right", va="center", color=PALETTE["ink"])
        y -= ROW_IN / height


def _said(point: Point, run: RooflineRun) -> str:
    """The words of a point, short enough for the list; without arithmetic it isn't on the plane."""
    words = point.words(run.roofs).replace("of the time is dispatch", "is dispatch")
    return words + ("" if point.cost.flops else " (no FLOPs)")


def _legend(axes: Axes, points: Sequence[Point], threads: int) -> None:
    """What filled, hollow, lines and arrows mean, in one line under the plane."""
    cold = any(p.is_cold for p in points)
    parts = ["filled: warm" + (", hollow: cold caches" if cold else "")]
    parts += ["bar: 95 % interval", "dots: to the least bytes", "arrow: standard to variant"]
    if threads > 1:
        parts.append(f"roofs of {threads} threads")
    axes.text(
        -0.13, -0.52 / _axes_height_in(axes), "; ".join(parts), transform=axes.transAxes, size=7.2,
        color=PALETTE["muted"], va="bottom",
    )  # fmt: skip


def _axes_height_in(axes: Axes) -> float:
    drawn: Any = axes.get_figure()
    return float(axes.get_position().height * drawn.get_figheight())


def _small_legend(axes: Axes, looks: Looks) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], marker=m, color=c, lw=0, ms=4, label=name) for name, (c, m) in looks.items()]
    axes.legend(
        handles=handles, loc="lower right", fontsize=6.5, frameon=True, framealpha=0.85, edgecolor="none",
        handletextpad=0.2, borderpad=0.2, labelspacing=0.25, borderaxespad=0.2,
    )  # fmt: skip
