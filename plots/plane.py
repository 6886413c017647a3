"""The plane of a roofline: log-log axes, the roofs on it, and measured kernels under them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flashperf.plots.labels import Box, around, covered, place_labels
from flashperf.plots.style import PALETTE
from flashperf.roofs.points import Point, RooflineRun
from flashperf.units import rate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from flashperf.roofs.model import Ceiling

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
_MARGIN = 1.6  # of the axes beyond the outermost point, as a factor
_ERROR = "#b00020"


def draw_plane(
    axes: Axes, run: RooflineRun, points: Sequence[Point], *, labelled: bool, threads: int = 1
) -> list[Box]:
    """Log-log axes with the roofs: slanted ones of the memory levels, level ones of the units.

    Returns where their labels are, in pixels.
    """
    from matplotlib.ticker import FuncFormatter, NullLocator

    left, right, bottom, top = _limits(run, points, threads)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(left, right)
    axes.set_ylim(bottom, top)
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
    units, levels = _units(run, points, threads), run.roofs.levels(threads)
    peak = max((unit.value for unit in units), default=top)
    occupied, labels = _occupied(axes, points), list[Box]()
    for level in levels:
        start = _slope(axes, level, peak)
        if labelled and start * level.value < peak:  # else it meets the peak left of the plane
            labels += _label_slope(axes, level, start, peak, occupied + labels)
    for unit in units:
        start = unit.value / levels[0].value
        axes.plot((start, right), (unit.value, unit.value), color=PALETTE["muted"], lw=1)
        if labelled:
            labels.append(_label_unit(axes, unit, occupied + labels))
    return labels


def _limits(run: RooflineRun, points: Sequence[Point], threads: int) -> tuple[float, float, float, float]:
    """Left, right, bottom, top: all points and the knees of the roofs that bound them."""
    x = [value for point in points for value in point.intensity if math.isfinite(value)]
    y = [point.flops_per_s.value for point in points]
    units, levels = _units(run, points, threads), run.roofs.levels(threads)
    if units:
        y.append(units[0].value)
        x.append(units[0].value / levels[-1].value)
    if not x:
        return 0.01, 100, 1e8, 1e12
    left, right = min(x) / _MARGIN, max(x) * _MARGIN
    return left, right * 1.5, min(y) / _MARGIN / 1.5, max(y) * 2.2


def _units(run: RooflineRun, points: Sequence[Point], threads: int) -> list[Ceiling]:
    """The units that bound a point, and the plain ones of f32, fastest first."""
    formats = dict.fromkeys(point.number_format for point in points)
    found = {(u.name, u.how): u for name in formats for u in run.roofs.units(name, threads)[:1]}
    if "f32" in formats:
        found |= {(u.name, u.how): u for u in run.roofs.units("f32", threads) if u.how == "scalar"}
    return sorted(found.values(), key=lambda unit: -unit.value)


def _occupied(axes: Axes, points: Sequence[Point]) -> list[Box]:
    """Where the points are, in pixels, with room for their numbers."""
    size = 0.2 * _dpi(axes)
    return [around(tuple(axes.transData.transform(at(point))), (size, size)) for point in points]


def _dpi(axes: Axes) -> float:
    drawn: Any = axes.get_figure()
    return float(drawn.dpi)


def _slope(axes: Axes, level: Ceiling, peak: float) -> float:
    """A memory roof up to the highest peak; the intensity at which it enters the plane."""
    left, right = axes.get_xlim()
    knee = min(peak / level.value, right)
    axes.plot((left / 10, knee), (left / 10 * level.value, knee * level.value), color=PALETTE["muted"], lw=1)
    return max(left * 1.12, axes.get_ylim()[0] * 1.25 / level.value)


def _label_slope(axes: Axes, level: Ceiling, first: float, peak: float, occupied: list[Box]) -> list[Box]:
    """Name and bandwidth of a memory roof along it, where it covers least; the boxes that it takes."""
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    box = axes.get_window_extent()
    slant = math.atan2(
        box.height / math.log(top / bottom), box.width / math.log(right / left)
    )  # of a line of slope 1 in log-log, on the paper
    said = f"{level.name} {level.text(level.value)}"
    knee = min(peak / level.value, right)
    choices = []
    for n in range(10):
        x = first * (knee / first) ** (0.085 * n)
        boxes = _along(axes, (x, x * level.value), slant, 0.075 * len(said) * _dpi(axes))
        choices.append((_covered(axes, boxes, occupied), n, x, boxes))
    _, _, start, boxes = min(choices)
    axes.text(
        start, start * level.value * 1.06, said, size=7.5, color=PALETTE["muted"],
        rotation=math.degrees(slant), rotation_mode="anchor", va="bottom",
    )  # fmt: skip
    return boxes


def _along(axes: Axes, start: tuple[float, float], slant: float, length: float) -> list[Box]:
    """A slanted label of a length in pixels as a row of small boxes."""
    height = 0.11 * _dpi(axes)
    x, y = axes.transData.transform(start)
    reached = [(n + 0.5) * height for n in range(int(length / height) + 1)]
    centres = [(x + r * math.cos(slant), y + r * math.sin(slant) + height) for r in reached]
    return [around(centre, (height, height)) for centre in centres]


def _covered(axes: Axes, boxes: Sequence[Box], occupied: Sequence[Box]) -> float:
    """How much of what is there a label would cover, and how much of it would leave the plane."""
    extent = axes.get_window_extent()
    frame = Box(extent.x0, extent.y0, extent.x1, extent.y1)
    return float(covered(boxes, occupied).sum()) + sum(box.outside(frame) for box in boxes)


def _label_unit(axes: Axes, unit: Ceiling, occupied: list[Box]) -> Box:
    """Name and peak of a unit over its roof, at the right if that is free; the box that it takes."""
    left, right = axes.get_xlim()
    said = f"{unit.name} {unit.how} {unit.text(unit.value)}"
    size = (0.07 * len(said) * _dpi(axes), 0.12 * _dpi(axes))
    choices = []
    for n in range(9):
        end = right * 0.97 / (right / left) ** (0.07 * n)
        x, y = axes.transData.transform((end, unit.value * 1.05))
        box = Box(x - size[0], y, x, y + size[1])
        choices.append((_covered(axes, [box], occupied), n, end, box))
    _, _, end, box = min(choices)
    axes.text(end, unit.value * 1.05, said, size=7.5, color=PALETTE["muted"], ha="right", va="bottom")
    return box


def draw_points(axes: Axes, run: RooflineRun, points: Sequence[Point], looks: Looks, size: float) -> None:
    """Markers with their intervals, cold joined to warm, standard joined to variant by an arrow."""
    by_key = {(key_of(p), p.is_cold): p for p in points}
    for (key, cold), point in by_key.items():
        colour, marker = looks[point.case.variant]
        x, y = at(point)
        if not cold and (key, True) in by_key:
            other = at(by_key[key, True])
            axes.plot((x, other[0]), (y, other[1]), color=colour, lw=0.8, alpha=0.7, zorder=2)
        _bars(axes, point, colour)
        face = PALETTE["paper"] if cold else colour
        axes.plot(x, y, marker, color=colour, mfc=face, mec=colour, ms=size, mew=1.1, zorder=4)
        if point.place(run.roofs).model_error:
            axes.plot(x, y, "x", color=_ERROR, ms=size * 2.1, mew=1.6, zorder=5)
    for point in points:
        if point.role != "standard" and not point.is_cold:
            standard = next((p for p in points if p.group == point.group and p.role == "standard"), None)
            if standard is not None:
                _arrow(axes, at(standard), at(point), size)


def at(point: Point) -> tuple[float, float]:
    """Its place: FLOPs per byte moved, FLOP/s."""
    return point.intensity[0], point.flops_per_s.value


def _bars(axes: Axes, point: Point, colour: str) -> None:
    """Upright: the interval of the time. Level: up to the intensity that the least bytes would give."""
    x, y = at(point)
    interval = point.flops_per_s
    if math.isfinite(interval.high) and interval.low > 0:
        axes.plot((x, x), (interval.low, interval.high), color=colour, lw=1.3, alpha=0.8, zorder=3)
    ideal = point.intensity[1]
    if math.isfinite(ideal) and ideal > x * 1.001:
        axes.plot((x, ideal), (y, y), color=colour, lw=0.9, ls=(0, (1.2, 1.6)), alpha=0.75, zorder=1)


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], size: float) -> None:
    axes.annotate(
        "", end, start, zorder=3,
        arrowprops={
            "arrowstyle": "-|>,head_width=0.16,head_length=0.3", "color": PALETTE["ink"], "lw": 0.6,
            "alpha": 0.55, "shrinkA": size * 0.6, "shrinkB": size * 0.7,
        },
    )  # fmt: skip


def _short_rate(value: float) -> str:
    """``10 G``: a rate without unit and without zeros behind the point."""
    number, _, prefix = rate(value, "").partition(" ")
    return f"{float(number):g} {prefix}".strip()


def key_of(point: Point) -> tuple[str, str]:
    """What a number stands for: a variant at a size, whatever the caches."""
    return point.case.variant, point.size


def number_points(
    axes: Axes, points: Sequence[Point], numbers: dict[tuple[str, str], int], labels: Sequence[Box]
) -> None:
    """The number of each warm point beside it, where nothing else is; ``labels`` are those of the roofs."""
    warm = [p for p in points if not p.is_cold]
    transform, box, dpi = axes.transData, axes.get_window_extent(), _dpi(axes)
    dot = (0.124 * dpi, 0.124 * dpi)
    taken = [*(around(tuple(transform.transform(at(p))), dot) for p in points), *labels]
    wanted = [tuple(transform.transform(at(p))) for p in warm]
    sizes = [(0.085 * len(str(numbers[key_of(p)])) * dpi, 0.115 * dpi) for p in warm]
    frame = Box(box.x0, box.y0, box.x1, box.y1)
    for point, centre in zip(warm, place_labels(wanted, sizes, taken, frame, 0.062 * dpi), strict=True):
        x, y = transform.inverted().transform(centre)
        said = str(numbers[key_of(point)])
        axes.text(x, y, said, size=8, weight="bold", ha="center", va="center", zorder=6)
