"""Verdicts on claims, from a measured ratio alone. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from flashperf.claims.definition import Claim, Untestable
from flashperf.records import Interval

REPRODUCED = "reproduced"
DIRECTION = "in direction"
CONTRADICTED = "contradicted"
CANT_TELL = "can't tell"
NOT_TESTABLE = "not testable here"
NOT_MEASURED = "not measured"
STATES = (REPRODUCED, DIRECTION, CONTRADICTED, CANT_TELL, NOT_TESTABLE, NOT_MEASURED)

#: A size is reproduced if the logarithm of the ratio is within this factor of the claim's. That an interval holds the
#: claim's ratio is not enough: a wide one holds any.
SIZE_FACTOR = 1.5
#: An interval within this fraction of 1 shows that there is no effect to speak of.
NOTHING = 0.05


@dataclass(frozen=True)
class Verdict:
    """A state and, in a few words, why."""

    state: str
    why: str = ""


def judge(claim: Claim, measured: Interval | None, missing: str = "") -> Verdict:
    """Judge a claim. ``measured`` is the ratio that its source gives, None if there is none; ``missing``: why."""
    if isinstance(claim.source, Untestable):
        return Verdict(NOT_TESTABLE, claim.source.why)
    if measured is None:
        return Verdict(NOT_MEASURED, missing or "its measurement was not made")
    if not all(map(math.isfinite, (measured.value, measured.low, measured.high))) or measured.low <= 0:
        return Verdict(CANT_TELL, "there is no interval yet")
    low, value, high = (_towards(x, claim.above) for x in (measured.low, measured.value, measured.high))
    low, high = min(low, high), max(low, high)
    margin = math.log1p(NOTHING)
    if claim.ratio is not None:
        margin = min(margin, abs(math.log(claim.ratio)) / 2)  # a claim of a small effect needs a closer look
    if -margin <= low and high <= margin:
        return Verdict(CONTRADICTED, f"no effect beyond {math.expm1(margin):.1%}")
    if high < 0:
        return Verdict(CONTRADICTED, "the other way round")
    if low <= 0:
        return Verdict(CANT_TELL, "the interval holds 1")
    if claim.ratio is None:
        return Verdict(DIRECTION, "it gives no size")
    return _sized(claim.ratio, claim, low, value, high)


def _towards(ratio: float, above: bool) -> float:
    """Log of a ratio, positive in the direction of the claim."""
    return math.log(ratio) if above else -math.log(ratio)


def _sized(ratio: float, claim: Claim, low: float, value: float, high: float) -> Verdict:
    claimed = _towards(ratio, claim.above)
    if claim.at_least:
        return (
            Verdict(REPRODUCED)
            if value >= claimed
            else Verdict(DIRECTION, f"less than the ×{ratio:.3g} claimed")
        )
    if 1 / SIZE_FACTOR <= value / claimed <= SIZE_FACTOR:
        return Verdict(REPRODUCED)
    if low <= claimed <= high:
        return Verdict(DIRECTION, f"the interval is too wide to tell the size, ×{ratio:.3g} is in it")
    size = "more" if value > claimed else "less"
    return Verdict(DIRECTION, f"{size} than the ×{ratio:.3g} claimed")
