"""Measured kernels on the plane of a roofline: markers, intervals, what belongs together, numbers."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from flashperf.plots.labels import Pair, around, place_labels
from flashperf.plots.plane import Plane, at
from flashperf.plots.style import PALETTE
from flashperf.roofs.points import Point, RooflineRun

#: Variants of one mechanism in their order; the standard one is always the first. Okabe and Ito's palette, whose
#: colours stay apart for all kinds of sight; the marker says the same again.
LOOKS = (
    ("#0072b2", "o"),
    ("#d55e00", "s"),
    ("#009e73", "^"),
    ("#aa4499", "D"),
    ("#6b6100", "v"),
    ("#3d4650", "P"),
)
Looks = dict[str, tuple[str, str]]
ERROR = "#b00020"
#: Kind of line -> how it is drawn.
_LINES: dict[str, dict[str, Any]] = {
    "joined": {"linewidths": 0.8, "alpha": 0.7, "zorder": 2},
    "interval": {"linewidths": 1.3, "alpha": 0.8, "zorder": 3},
    "ideal": {"linewidths": 0.9, "alpha": 0.75, "zorder": 1, "linestyles": [(0, (1.2, 1.6))]},
}
_LEADER_IN = 0.16  # from the point to the middle of its number; further away a thin line leads there


def key_of(point: Point) -> tuple[str, str]:
    """What a number stands for: a variant at a size, whatever the caches."""
    return point.case.variant, point.size


def draw_points(plane: Plane, run: RooflineRun, points: Sequence[Point], looks: Looks, size: float) -> None:
    """Markers with their intervals, cold joined to warm, standard joined to variant by an arrow."""
    lines: dict[str, list[tuple[str, Pair, Pair]]] = defaultdict(list)
    cold = {key_of(p): at(p) for p in points if p.is_cold}
    for point in points:
        colour, here = looks[point.case.variant][0], at(point)
        if not point.is_cold and key_of(point) in cold:
            lines["joined"].append((colour, here, cold[key_of(point)]))
        interval, ideal = point.flops_per_s, point.intensity[1]
        if math.isfinite(interval.high) and interval.low > 0:
            lines["interval"].append((colour, (here[0], interval.low), (here[0], interval.high)))
        if math.isfinite(ideal) and ideal > here[0] * 1.001:
            lines["ideal"].append((colour, here, (ideal, here[1])))
    for kind, drawn in lines.items():
        _draw_lines(plane, kind, drawn)
    _draw_markers(plane, run, points, looks, size)
    standards = {p.group: at(p) for p in points if p.role == "standard" and not p.is_cold}
    for point in points:
        if point.role != "standard" and not point.is_cold and point.group in standards:
            _arrow(plane, standards[point.group], at(point), size)


def _draw_lines(plane: Plane, kind: str, drawn: Sequence[tuple[str, Pair, Pair]]) -> None:
    """All lines of a kind at once: one line each would take most of the time of a picture."""
    from matplotlib.collections import LineCollection

    ends = [(start, end) for _, start, end in drawn]
    for start, end in ends:
        plane.add_line(start, end)
    colours = [colour for colour, _, _ in drawn]
    plane.axes.add_collection(LineCollection(ends, colors=colours, **_LINES[kind]), autolim=False)


def _draw_markers(plane: Plane, run: RooflineRun, points: Sequence[Point], looks: Looks, size: float) -> None:
    """One set of markers for each look, hollow ones for cold caches, a cross on those above their roofs."""
    alike: dict[tuple[str, str, str], list[Pair]] = defaultdict(list)
    for point in points:
        colour, marker = looks[point.case.variant]
        alike[colour, marker, PALETTE["paper"] if point.is_cold else colour].append(at(point))
    for (colour, marker, face), places in alike.items():
        x, y = zip(*places, strict=True)
        plane.axes.plot(x, y, marker, color=colour, mfc=face, mec=colour, ms=size, mew=1.1, zorder=4)
    above = [at(point) for point in points if point.place(run.roofs).model_error]
    if above:
        x, y = zip(*above, strict=True)
        plane.axes.plot(x, y, "x", color=ERROR, ms=size * 2.1, mew=1.6, zorder=5)


def _arrow(plane: Plane, start: Pair, end: Pair, size: float) -> None:
    plane.add_line(start, end)
    plane.axes.annotate(
        "", end, start, zorder=3,
        arrowprops={
            "arrowstyle": "-|>,head_width=0.16,head_length=0.3", "color": PALETTE["ink"], "lw": 0.6,
            "alpha": 0.55, "shrinkA": size * 0.6, "shrinkB": size * 0.7,
        },
    )  # fmt: skip


def number_points(plane: Plane, points: Sequence[Point], numbers: dict[tuple[str, str], int]) -> None:
    """The number of each warm point beside it, where nothing else is; from further away a thin line leads to it."""
    warm, dpi = [p for p in points if not p.is_cold], plane.dpi
    dot = (0.13 * dpi, 0.13 * dpi)
    taken = [*(around(plane.pixels(at(p)), dot) for p in points), *plane.names]
    wanted = [plane.pixels(at(p)) for p in warm]
    sizes = [((0.085 * len(str(numbers[key_of(p)])) + 0.02) * dpi, 0.125 * dpi) for p in warm]
    placed = place_labels(wanted, sizes, taken, plane.frame, 0.062 * dpi, plane.lines)
    to_data = plane.axes.transData.inverted().transform
    for point, here, centre in zip(warm, wanted, placed, strict=True):
        x, y = to_data(centre)
        if math.dist(here, centre) > _LEADER_IN * dpi:
            plane.axes.plot(
                (at(point)[0], x), (at(point)[1], y), color=PALETTE["ink"], lw=0.5, alpha=0.6, zorder=3.5
            )
        said = str(numbers[key_of(point)])
        back = {"boxstyle": "square,pad=0.05", "fc": PALETTE["paper"], "ec": "none", "alpha": 0.85}
        plane.axes.text(x, y, said, size=8, weight="bold", ha="center", va="center", zorder=6, bbox=back)
