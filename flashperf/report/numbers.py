"""How numbers and names are written, the same in the terminal, on the page and in pictures. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final, Literal

from flashperf.records import Interval, Share

SLOWS: Final = "slows"
HELPS: Final = "helps"
UNCLEAR: Final = "can't tell"
Effect = Literal["slows", "helps", "can't tell"]

#: unit as recorded -> (factor, unit as shown), largest first; the factor divides.
_SCALES: dict[str, tuple[tuple[float, str], ...]] = {
    "s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")),
    "bytes": ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")),
    "J": ((1.0, "J"), (1e-3, "mJ")),
    "fraction": ((1e-2, "%"),),
}


def clean(name: str) -> str:
    """A name from outside, with control and direction characters replaced: it can't move the cursor."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name)


def effect(interval: Interval) -> Effect:
    """Whether a ratio of times slows, helps, or can't be told from 1."""
    if interval.low > 1:
        return SLOWS
    return HELPS if interval.high < 1 else UNCLEAR


def bounded(interval: Interval) -> bool:
    """Whether the interval says anything: a single process gives an estimate but no bound."""
    return all(map(math.isfinite, (interval.value, interval.low, interval.high))) and interval.low > 0


def by_share(shares: Iterable[Share]) -> list[Share]:
    """Largest slowdown first, inactive ones last."""
    return sorted(shares, key=lambda s: (not s.active, -s.share.value if math.isfinite(s.share.value) else 0))


def decimals_for(intervals: Iterable[Interval]) -> int:
    """Two decimals for ratios, three where the typical interval is narrower than 0.02."""
    widths = sorted(i.half_width for i in intervals if bounded(i))
    return 3 if widths and widths[len(widths) // 2] < 0.01 else 2


def fixed(value: float, decimals: int = 2) -> str:
    """A ratio at a fixed number of decimals: fewer from 10 on, more below 0.1."""
    if not math.isfinite(value):
        return "∞" if value > 0 else "?"
    size = abs(value)
    if size >= 10:
        decimals = max(0, decimals - (1 if size < 100 else 2))
    elif 0 < size < 0.1:
        decimals += 1
    return f"{value:.{decimals}f}"


def times(value: float, decimals: int = 2) -> str:
    """A ratio as a factor: ``×1.21``."""
    return "×" + fixed(value, decimals)


def bracketed(interval: Interval, decimals: int = 2) -> str:
    """``1.21 [1.18 1.24]``; the value alone where it is exact, ``[no interval]`` where there is none yet."""
    if math.isnan(interval.value):
        return "not measured"
    if interval.low == interval.high:
        return fixed(interval.value, decimals + 1)
    if not bounded(interval):
        return f"{fixed(interval.value, decimals)} [no interval]"
    low, high = fixed(interval.low, decimals), fixed(interval.high, decimals)
    return f"{fixed(interval.value, decimals)} [{low} {high}]"


def spread(interval: Interval, decimals: int = 2) -> str:
    """``1.21 ±.03``: the longer side of the interval, in the value's unit; ``±?`` if there is none."""
    if math.isnan(interval.value):
        return "-"
    side = max(interval.high - interval.value, interval.value - interval.low)
    if not math.isfinite(side):
        return f"{fixed(interval.value, decimals)} ±?"
    shown = fixed(interval.value, decimals)
    places = len(shown.partition(".")[2])
    width = f"{side:.{places}f}"
    return f"{shown} ±{width.removeprefix('0') if places else width}"


def span(interval: Interval, decimals: int = 2) -> str:
    """``1.18 to 1.24``, for a sentence."""
    return f"{fixed(interval.low, decimals)} to {fixed(interval.high, decimals)}"


def percent(interval: Interval | None) -> str:
    """Points of the log slowdown: ``61 ±3``; a dash where the percentage is not defined."""
    if interval is None or not math.isfinite(interval.value):
        return "-"
    side = max(interval.high - interval.value, interval.value - interval.low)
    return f"{interval.value:.0f}" + (f" ±{side:.0f}" if math.isfinite(side) else " ±?")


def scale(unit: str, values: Iterable[float]) -> tuple[float, str]:
    """(divisor, unit to show) that suits the smallest of the values: 0.312 s is shown as 312 ms."""
    steps = _SCALES.get(unit)
    if not steps:
        return 1.0, unit
    sizes = [abs(v) for v in values if math.isfinite(v) and v]
    smallest = min(sizes, default=1.0)
    for factor, shown in steps:
        if smallest >= factor:
            return factor, shown
    return steps[-1]


def places_for(intervals: Iterable[Interval], divisor: float) -> int:
    """Decimals for one row of quantities: three digits of the smallest, one more where all are exact."""
    known = [interval for interval in intervals if math.isfinite(interval.value)]
    smallest = min((abs(interval.value) / divisor for interval in known), default=0.0)
    exact = all(interval.low == interval.high for interval in known)
    places = 0 if smallest >= 100 else 1 if smallest >= 10 else 2
    return places + (1 if exact and 0 < smallest < 10 else 0)


def quantity(interval: Interval | None, divisor: float, places: int) -> str:
    """A measured quantity: ``31.2 ±0.3``; ``-`` where it is missing; no ± where it is exact."""
    if interval is None or math.isnan(interval.value):
        return "-"
    side = max(interval.high - interval.value, interval.value - interval.low) / divisor
    shown = f"{interval.value / divisor:.{places}f}"
    if side == 0:
        return shown
    return f"{shown} ±{side:.{places}f}" if math.isfinite(side) else f"{shown} ±?"


def duration(seconds: float) -> str:
    """``47 s``, ``3 min 20 s``: for time spent and time left."""
    whole = max(0, round(seconds))
    return f"{whole} s" if whole < 100 else f"{whole // 60} min {whole % 60:02d} s"
