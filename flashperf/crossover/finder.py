"""Where one variant overtakes another: scan, refine, fit; an interval that is right 95 % of the time, or less.

Pure: ``find`` asks a function for log ratios and never looks at a clock. The method and the simulations that
settled it are in docs/crossover.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flashperf.crossover.fit import CONFIDENCE, confident_signs, huber_quadratics, t_statistics
from flashperf.crossover.pattern import Bracket, changes, strict_t
from flashperf.records import Interval
from flashperf.stats import exp_interval, t_interval, t_quantile

SCAN_SIZES = 13
SCAN_BLOCKS = 2
REFINED_SIZES, LEAST_SIZES = 7, 4
CENTRE_BLOCKS, REFINED_BLOCKS = 2, 3
#: Sizes are refined where |log ratio| is at most this by the local slope, and within these log distances.
WINDOW = 0.10
NARROWEST, WIDEST = 0.2, 1.6
SLOPE_REACH = 1.8  # scan sizes within this log distance of the centre give the local slope
LEAST_SLOPE = 0.01
#: Curves so flat cross somewhere in a window as wide as a factor of 5; bends of 1 % that no quadratic follows then
#: move the crossing by more than the interval says.
LEAST_RESOLVED_SLOPE = 0.1
#: An interval wider than a factor e on either side of its middle says less than the bracket of the scan.
WIDEST_HALF_WIDTH = 1.0
GRID = 401

#: (sizes, blocks) -> log(time of b / time of a), shape (workers, sizes, blocks). It may measure fewer sizes than
#: asked, as many of the first as there is time for, or raise OutOfTime.
Measure = Callable[[Sequence[int], int], np.ndarray]


class OutOfTime(Exception):  # noqa: N818 - no error: what was measured before is the answer
    """There is no time left to measure what was asked for."""


@dataclass(frozen=True)
class Crossing:
    """One place where the sign of log(b / a) changes, with the sizes between which it lies.

    below: "a" or "b", whichever is faster below. resolved: low and high are an interval with 95 % confidence
    for the crossing, and ``value`` its estimate; else they are the ends of the scan's bracket.
    """

    low: int
    high: int
    below: str
    resolved: bool
    value: float | None = None
    slope: float | None = None

    @property
    def above(self) -> str:
        """Who is faster above."""
        return "b" if self.below == "a" else "a"


@dataclass(frozen=True)
class ScanPoint:
    """Time of b / time of a at one size, interval over processes, and its sign where that is confident."""

    size: int
    ratio: Interval
    sign: int


@dataclass(frozen=True)
class Finding:
    """The answer for one range of sizes.

    kind: "none" (one side is faster everywhere), "crossings" (one or more) or "unresolved" (can't tell).
    faster: for "none", and for "unresolved" where one side at least is known, "a" or "b"; else "".
    unknown: for "unresolved", the sizes between which no side is confidently faster.
    """

    kind: str
    faster: str
    crossings: tuple[Crossing, ...]
    unknown: tuple[int, int] | None
    scan: tuple[ScanPoint, ...]
    workers: int


def scan_sizes(low: int, high: int) -> list[int]:
    """At most SCAN_SIZES distinct integers from low to high, evenly spaced in their logarithms."""
    if not 1 <= low < high:
        raise ValueError(f"a range of sizes is two integers, 1 or more, the first smaller: not {low}:{high}")
    spaced = np.geomspace(low, high, SCAN_SIZES)
    return [int(size) for size in np.unique(np.clip(np.round(spaced), low, high))]


def find(measure: Measure, low: int, high: int) -> Finding:
    """Find every crossing of b over a (or of a over b) between two sizes, both included.

    Where ``measure`` scans fewer sizes than asked, the last of those ends the range. Raises OutOfTime if there is
    none.
    """
    values = np.asarray(measure(scan_sizes(low, high), SCAN_BLOCKS)).mean(axis=2)
    sizes = scan_sizes(low, high)[: values.shape[1]]
    t = t_statistics(values)
    signs = confident_signs(t, values.shape[0])
    points = tuple(
        ScanPoint(size, exp_interval(t_interval(values[:, n])), int(signs[n])) for n, size in enumerate(sizes)
    )
    brackets = changes(sizes, t, values.shape[0])
    if brackets:
        crossings = tuple(_refine(measure, sizes, values.mean(axis=0), bracket) for bracket in brackets)
        return Finding("crossings", "", crossings, None, points, values.shape[0])
    strict = np.abs(t) > strict_t(values.shape[0], len(sizes))
    if strict.all() and abs(signs.sum()) == len(sizes):
        return Finding("none", _faster(int(signs[0])), (), None, points, values.shape[0])
    return Finding("unresolved", *_one_sided(sizes, signs, strict), points, values.shape[0])


def _faster(sign: int) -> str:
    """Who is faster where log(b / a) has a sign."""
    return "a" if sign > 0 else "b" if sign < 0 else ""


def _one_sided(
    sizes: Sequence[int], signs: np.ndarray, strict: np.ndarray
) -> tuple[str, tuple[()], tuple[int, int]]:
    """Who is faster where anything is known, and the nearest known sizes around those at which nothing is."""
    known = strict & (signs != 0)
    faster = {_faster(int(sign)) for sign in signs[known]}
    unknown = np.flatnonzero(~known)
    side = faster.pop() if len(faster) == 1 else ""
    last = len(sizes) - 1
    return side, (), (sizes[max(0, unknown[0] - 1)], sizes[min(last, unknown[-1] + 1)])


def _refine(measure: Measure, sizes: Sequence[int], means: np.ndarray, bracket: Bracket) -> Crossing:
    """The crossing in a bracket: its interval where that can be had, else the bracket."""
    wide = Crossing(bracket.low, bracket.high, _faster(bracket.sign_below), False)
    try:
        return _refined(measure, sizes, means, bracket, wide)
    except OutOfTime:
        return wide


def _refined(
    measure: Measure, sizes: Sequence[int], means: np.ndarray, bracket: Bracket, wide: Crossing
) -> Crossing:
    """Measure around one crossing, twice: the first time only to find the middle."""
    centre = bracket.centre(sizes, means)
    scanned = _local_slope(sizes, means, centre)
    first = window_sizes(centre, scanned, sizes[0], sizes[-1])
    if len(first) < 2:
        return wide
    fitted = huber_quadratics(_logs(first, centre), measure(first, CENTRE_BLOCKS), degree=1).mean(axis=0)
    if abs(fitted[1]) > 0.2 * scanned:
        reach = math.log(first[-1] / first[0]) / 2
        centre *= math.exp(float(np.clip(-fitted[0] / fitted[1], -reach, reach)))
        centre = min(max(centre, sizes[0]), sizes[-1])
    second = window_sizes(centre, scanned, sizes[0], sizes[-1])
    x, blocks = _logs(second, centre), measure(second, REFINED_BLOCKS)
    slope = abs(float(huber_quadratics(x, blocks, degree=1)[:, 1].mean()))
    ends = interval(x, blocks, bracket.sign_below)
    if ends is None or slope < LEAST_RESOLVED_SLOPE or ends[2] - ends[0] > 2 * WIDEST_HALF_WIDTH:
        return replace(wide, slope=slope)
    low, value, high = (centre * math.exp(end) for end in ends)
    return Crossing(math.floor(low), math.ceil(high), wide.below, True, value, slope)


def _logs(sizes: Sequence[int], centre: float) -> np.ndarray:
    return np.log(np.asarray(sizes, dtype=np.float64) / centre)


def _local_slope(sizes: Sequence[int], means: np.ndarray, centre: float) -> float:
    """|d log ratio / d log n| of a straight line through the scan around the centre, at least LEAST_SLOPE."""
    x = _logs(sizes, centre)
    near = np.abs(x) < SLOPE_REACH
    if near.sum() < 2:
        near = np.argsort(np.abs(x))[:2]
    return max(abs(float(np.polyfit(x[near], means[near], 1)[0])), LEAST_SLOPE)


def window_sizes(centre: float, slope: float, low: int, high: int) -> list[int]:
    """REFINED_SIZES distinct integers around a centre, where the ratio is near 1; fewer where they don't fit."""
    reach = float(np.clip(WINDOW / slope, NARROWEST, WIDEST))
    wanted = np.round(centre * np.exp(np.linspace(-reach, reach, REFINED_SIZES)))
    sizes = np.unique(np.clip(wanted, low, high))
    if sizes.size < LEAST_SIZES:
        neighbours = round(centre) + np.arange(REFINED_SIZES) - REFINED_SIZES // 2
        sizes = np.unique(np.clip(neighbours, low, high))
    return [int(size) for size in sizes]


def interval(x: np.ndarray, blocks: np.ndarray, sign_below: int) -> tuple[float, float, float] | None:
    """(low, crossing, high) in the units of ``x``, from blocks of shape (workers, sizes, blocks).

    A quadratic per worker; at every x the t of the fitted values over workers. The interval runs from the last
    x that is confidently on the side below to the first that is confidently on the other, both counted from
    where the mean crosses zero. None if the fit has no such crossing or one of the ends is not reached. Where costs
    jump, as at the edge of a cache, no quadratic follows: ``_stretched`` then lets the sizes speak for themselves.
    """
    coefficients = huber_quadratics(x, blocks, degree=2)
    grid = np.linspace(x[0], x[-1], GRID)
    fitted = coefficients @ np.vander(grid, coefficients.shape[1], increasing=True).T
    t = t_statistics(fitted) * -sign_below  # rises through 0
    crossed = np.flatnonzero((t[:-1] < 0) & (t[1:] >= 0))
    if not crossed.size:
        return None
    middle = int(crossed[np.argmin(np.abs(grid[crossed]))])
    limit = t_quantile(CONFIDENCE, blocks.shape[0] - 1)
    below = np.flatnonzero(t[: middle + 1] < -limit)
    above = np.flatnonzero(t[middle + 1 :] > limit)
    if not below.size or not above.size:
        return None
    share = t[middle] / (t[middle] - t[middle + 1])
    value = grid[middle] + share * (grid[middle + 1] - grid[middle])
    ends = float(grid[below[-1]]), float(value), float(grid[middle + 1 + above[0]])
    means = blocks.mean(axis=2)
    residuals = means - coefficients @ np.vander(x, coefficients.shape[1], increasing=True).T
    bent = bool((np.abs(t_statistics(residuals)) > strict_t(blocks.shape[0], x.size)).any())
    return _stretched(ends, x, t_statistics(means) * -sign_below, limit, bent)


def _stretched(
    ends: tuple[float, float, float], x: np.ndarray, t: np.ndarray, limit: float, bent: bool
) -> tuple[float, float, float] | None:
    """The interval as it is, or, where the fit is bent or contradicted, so wide that no fit is needed for it.

    t: of the sizes at ``x``, without a fit; negative on the side below. Contradicted: a size outside the interval is
    confidently on the wrong side. The interval then reaches from the last size of which all before it are below, or
    open, to the first of which all after it are above, or open; None if there is none.
    """
    low, value, high = ends
    below, above = x[t < -limit], x[t > limit]
    if not (bent or (below > high).any() or (above < low).any()):
        return ends
    if not below.size or not above.size or below[0] > above[0] or below[-1] > above[-1]:
        return None
    start, stop = float(below[below < above[0]][-1]), float(above[above > below[-1]][0])
    inside = value if start <= value <= stop else (start + stop) / 2
    return min(low, start), inside, max(high, stop)
