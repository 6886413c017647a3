"""The plane of a roofline: log-log axes and the roofs on it, with their names where they cover least."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flashperf.plots.labels import Box, Line, Pair, around, covered, struck
from flashperf.plots.style import PALETTE
from flashperf.roofs.points import Point, RooflineRun
from flashperf.units import rate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from flashperf.roofs.model import Ceiling

_MARGIN = 1.6  # of the axes beyond the outermost point, as a factor
#: Height and width of a letter of a roof's name in inches, per point of its size.
_LETTER_IN = (0.0155, 0.0086)
_STRUCK = 4.0  # square pixels covered are as bad as one pixel of line through a name
_AWAY = 30.0  # ... as one step away from the preferred end


@dataclass
class Plane:
    """Axes with roofs; where names and lines are, in pixels, so that what follows stays off them."""

    axes: Axes
    frame: Box
    dpi: float
    names: list[Box] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)

    def pixels(self, place: Pair) -> Pair:
        """A place of the plane in pixels."""
        x, y = self.axes.transData.transform(place)
        return float(x), float(y)

    def add_line(self, start: Pair, end: Pair) -> None:
        """Note that there is a line between two places."""
        self.lines.append((*self.pixels(start), *self.pixels(end)))


def draw_plane(
    axes: Axes,
    run: RooflineRun,
    points: Sequence[Point],
    *,
    size: float,
    threads: int = 1,
    small: Sequence[Point] | None = None,
) -> Plane:
    """Log-log axes with the roofs of ``points``: slanted ones of the memory levels, level ones of the units.

    ``size`` of their names in points. A small plane, which shows some of the points only, has names without rates,
    and leaves out a name that would cover something.
    """
    (left, right), (bottom, top) = _limits(run, points, threads)
    _dress(axes, (left, right), (bottom, top))
    box, drawn = axes.get_window_extent(), axes.get_figure()
    plane = Plane(axes, Box(box.x0, box.y0, box.x1, box.y1), float(getattr(drawn, "dpi", 100.0)))
    units, levels = _units(run, points, threads), run.roofs.levels(threads)
    peak = max((unit.value for unit in units), default=top)
    ends = [_roof_ends(level, peak, left, right) for level in levels]
    ends += [((unit.value / levels[0].value, unit.value), (right, unit.value)) for unit in units]
    for start, end in ends:
        plane.add_line(start, end)
    _draw_lines(axes, ends)
    shown, rates = (points, True) if small is None else (small, False)
    dots = [around(plane.pixels(at(point)), (0.13 * plane.dpi, 0.13 * plane.dpi)) for point in shown]
    for level in levels:
        first = max(left * 1.12, bottom * 1.25 / level.value)
        if first * level.value < peak:  # else it meets the peak left of the plane
            said = f"{level.name} {level.text(level.value)}" if rates else level.name
            _name_level(plane, level.value, (first, min(peak / level.value, right)), said, size, dots, rates)
    for unit in units:
        said = f"{unit.name} {unit.how} {unit.text(unit.value)}" if rates else f"{unit.name} {unit.how}"
        _name_unit(plane, unit.value, said, size, dots, rates)
    return plane


def at(point: Point) -> Pair:
    """Its place: FLOPs per byte moved, FLOP/s."""
    return point.intensity[0], point.flops_per_s.value


def _dress(axes: Axes, across: Pair, up: Pair) -> None:
    """Scales, ticks, grid and titles of the axes."""
    from matplotlib.ticker import FuncFormatter, NullLocator

    axes.set(xscale="log", yscale="log", xlim=across, ylim=up)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _short_rate(value)))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
    axes.tick_params(length=0, labelsize=8, colors=PALETTE["muted"])
    axes.grid(color=PALETTE["rule"], lw=0.5, alpha=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.set_xlabel("FLOP per byte", size=8.5, color=PALETTE["muted"])
    axes.set_ylabel("FLOP/s", size=8.5, color=PALETTE["muted"])


def _short_rate(value: float) -> str:
    """``10 G``: a rate without unit and without zeros behind the point."""
    number, _, prefix = rate(value, "").partition(" ")
    return f"{float(number):g} {prefix}".strip()


def _limits(run: RooflineRun, points: Sequence[Point], threads: int) -> tuple[Pair, Pair]:
    """Left and right, bottom and top: all points and the knees of the roofs that bound them."""
    x = [value for point in points for value in point.intensity if math.isfinite(value)]
    y = [point.flops_per_s.value for point in points]
    units, levels = _units(run, points, threads), run.roofs.levels(threads)
    if units:
        y.append(units[0].value)
        x.append(units[0].value / levels[-1].value)
    if not x:
        return (0.01, 100), (1e8, 1e12)
    return (min(x) / _MARGIN, max(x) * _MARGIN * 1.5), (min(y) / _MARGIN / 1.5, max(y) * 3.2)


def _units(run: RooflineRun, points: Sequence[Point], threads: int) -> list[Ceiling]:
    """The units that bound a point, and the plain ones of f32, fastest first."""
    formats = dict.fromkeys(point.number_format for point in points)
    found = {(u.name, u.how): u for name in formats for u in run.roofs.units(name, threads)[:1]}
    if "f32" in formats:
        found |= {(u.name, u.how): u for u in run.roofs.units("f32", threads) if u.how == "scalar"}
    return sorted(found.values(), key=lambda unit: -unit.value)


def _roof_ends(level: Ceiling, peak: float, left: float, right: float) -> tuple[Pair, Pair]:
    """A memory roof from left of the plane up to the highest peak."""
    knee = min(peak / level.value, right)
    return (left / 10, left / 10 * level.value), (knee, knee * level.value)


def _draw_lines(axes: Axes, ends: Sequence[tuple[Pair, Pair]]) -> None:
    from matplotlib.collections import LineCollection

    axes.add_collection(
        LineCollection(ends, colors=PALETTE["muted"], linewidths=1, zorder=1.5), autolim=False
    )


def _name_level(
    plane: Plane, rate_bytes: float, ends: Pair, said: str, size: float, dots: Sequence[Box], always: bool
) -> None:
    """The name of a memory roof along it, above or below, where it covers least, best near its lower end."""
    (x0, y0), (x1, y1) = (plane.pixels((x, x * rate_bytes)) for x in ends)
    slant = math.atan2(y1 - y0, x1 - x0)
    height, length = _LETTER_IN[0] * size * plane.dpi, _LETTER_IN[1] * size * len(said) * plane.dpi
    room = math.hypot(x1 - x0, y1 - y0) - length
    steps = [room * n / 15 for n in range(16)] if room > 0 else [0.0]
    normal = (-math.sin(slant), math.cos(slant))
    found: list[tuple[float, Pair, list[Box], bool]] = []
    for above in (True, False):
        off = 0.75 * height * (1 if above else -1)
        for n, step in enumerate(steps):
            x, y = (o + step * w + off * v for o, w, v in zip((x0, y0), _way(slant), normal, strict=True))
            boxes = _along((x, y), slant, length, 0.8 * height)
            badness = _badness(plane, boxes, dots) + _AWAY * (n + 2 * (not above))
            found.append((badness, (x, y), boxes, above))
    _, (x, y), boxes, _ = min(found, key=lambda choice: choice[0])
    if not always and _collides(plane, boxes):
        return
    plane.names += boxes
    _write(plane, (x, y), said, size, rotation=math.degrees(slant), rotation_mode="anchor", va="center")


def _name_unit(plane: Plane, value: float, said: str, size: float, dots: Sequence[Box], always: bool) -> None:
    """The name of a unit above or below its roof, best at the right end."""
    height, length = _LETTER_IN[0] * size * plane.dpi, _LETTER_IN[1] * size * len(said) * plane.dpi
    y = plane.pixels((plane.axes.get_xlim()[1], value))[1]
    room = plane.frame.right - plane.frame.left - length
    found: list[tuple[float, Pair, Box]] = []
    for above in (True, False):
        off = 0.75 * height * (1 if above else -1)
        for n in range(16):
            start = plane.frame.right - length - 4 - max(0.0, room) * n / 16
            box = Box(start, y + off - 0.5 * height, start + length, y + off + 0.5 * height)
            badness = _badness(plane, [box], dots) + _AWAY * (n + 2 * (not above))
            found.append((badness, (start + length, y + off), box))
    _, place, box = min(found, key=lambda choice: choice[0])
    if not always and _collides(plane, [box]):
        return
    plane.names.append(box)
    _write(plane, place, said, size, ha="right", va="center")


def _write(plane: Plane, place: Pair, said: str, size: float, **how: Any) -> None:
    x, y = plane.axes.transData.inverted().transform(place)
    plane.axes.text(x, y, said, size=size, color=PALETTE["muted"], **how)


def _way(slant: float) -> Pair:
    return math.cos(slant), math.sin(slant)


def _along(start: Pair, slant: float, length: float, height: float) -> list[Box]:
    """A slanted name of a length in pixels as a row of small boxes about its middle line."""
    (x, y), (dx, dy) = start, _way(slant)
    reached = [(n + 0.5) * height for n in range(max(1, math.ceil(length / height)))]
    return [around((x + r * dx, y + r * dy), (height, height)) for r in reached]


def _badness(plane: Plane, boxes: Sequence[Box], dots: Sequence[Box]) -> float:
    """How much of what is there a name would cover, how much line would strike it, how much of it is outside."""
    outside = sum(box.outside(plane.frame) for box in boxes)
    through = float(struck(boxes, plane.lines).sum())
    return float(covered(boxes, [*dots, *plane.names]).sum()) * 4 + 8 * outside + _STRUCK * through


def _collides(plane: Plane, boxes: Sequence[Box]) -> bool:
    """Whether a name would lie on a line or on another name."""
    return bool(struck(boxes, plane.lines).any() or covered(boxes, plane.names).any())
