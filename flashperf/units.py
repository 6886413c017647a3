"""Numbers with units for plain text: seconds, rates, bytes. Pure."""

from __future__ import annotations

import math

_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_RATES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))


def seconds(value: float) -> str:
    """``0.00123`` as ``1.23 ms``; three digits."""
    if not math.isfinite(value):
        return "? s"
    factor, unit = next(((f, u) for f, u in _TIMES if abs(value) >= f), _TIMES[-1])
    return f"{_three_digits(value / factor)} {unit}"


def rate(value: float, unit: str) -> str:
    """``1.23e10`` B/s as ``12.3 GB/s``; decimal prefixes, three digits."""
    if not math.isfinite(value):
        return f"? {unit}"
    factor, prefix = next(((f, p) for f, p in _RATES if abs(value) >= f), _RATES[-1])
    return f"{_three_digits(value / factor)} {prefix}{unit}"


def _three_digits(value: float) -> str:
    if value == 0:
        return "0"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"
