"""What was measured of a case, as the diagnosis sees it: times, ratios, counts, times of parts. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from flashperf.cases.definition import CONTROL, SWEEP
from flashperf.records import Comparison, Interval

#: Ratios within this fraction of 1 are called equal, where their interval allows it.
MARGIN = 0.05


@dataclass(frozen=True)
class PathMeasured:
    """One path at one point: seconds per call, counts of one call, seconds of parts alone, the first call."""

    time_s: Interval
    facts: Mapping[str, float] = field(default_factory=dict)
    parts_s: Mapping[str, float] = field(default_factory=dict)
    first_s: float = math.nan

    def fact(self, name: str) -> float:
        """A count; nan where it was not taken."""
        return self.facts.get(name, math.nan)


@dataclass(frozen=True)
class PairMeasured:
    """A path against the baseline at one point; ratio = time of the path / time of the baseline."""

    path: str
    baseline: PathMeasured
    other: PathMeasured
    ratio: Comparison

    @property
    def difference_s(self) -> float:
        """Seconds that a call of the path takes beyond one of the baseline."""
        return self.other.time_s.value - self.baseline.time_s.value

    @property
    def sign(self) -> str:
        """ "slower", "faster", "equal" or "can't tell"."""
        return sign_of(self.ratio)


@dataclass(frozen=True)
class PointMeasured:
    """All pairs at one setting, by path."""

    label: str
    x: float
    role: str
    pairs: Mapping[str, PairMeasured]


@dataclass(frozen=True)
class CaseMeasured:
    """A case: its points in order, which path is under diagnosis, and at which point.

    called_s, nested_s: seconds to dispatch an operator that does next to nothing, from Python and from another.
    """

    optimised: str
    headline: int
    points: Sequence[PointMeasured]
    axis: str = "n"
    called_s: float = math.nan
    nested_s: float = math.nan

    @property
    def pair(self) -> PairMeasured:
        """The pair that the diagnosis is of."""
        return self.points[self.headline].pairs[self.optimised]

    def other(self, path: str) -> PairMeasured | None:
        """Another path at the headline point."""
        return self.points[self.headline].pairs.get(path)

    def along(self, role: str = SWEEP) -> list[tuple[float, PairMeasured]]:
        """(x, pair) of the diagnosed path at all points of a role, by x."""
        found = [
            (p.x, p.pairs[self.optimised])
            for p in self.points
            if p.role == role and self.optimised in p.pairs
        ]
        return sorted(found, key=lambda item: item[0])

    def controls(self) -> list[PairMeasured]:
        """The diagnosed path at the control points."""
        return [pair for _, pair in self.along(CONTROL)]


def sign_of(ratio: Comparison) -> str:
    """A verdict as the sign of an effect."""
    return {"slower": "slower", "faster": "faster", "equivalent": "equal"}.get(ratio.verdict, "can't tell")


@dataclass(frozen=True)
class Crossover:
    """Where the sign changes along the sweep: between ``low`` and ``high``, or why there is no such place."""

    low: float = math.nan
    high: float = math.nan
    text: str = ""


def crossover(along: Sequence[tuple[float, PairMeasured]], axis: str) -> Crossover:
    """The bracket of the change of sign between confidently measured neighbours of the sweep.

    Points without a confident sign between them widen the bracket. Fewer than two points: nothing to say.
    """
    if len(along) < 2:
        return Crossover(text="not swept")
    known = [(x, pair.sign) for x, pair in along if pair.sign in ("slower", "faster")]
    changes = [(a, b) for a, b in itertools.pairwise(known) if a[1] != b[1]]
    if not known:
        return Crossover(text="can't tell")
    if not changes:
        complete = len(known) == len(along)
        everywhere = f"{known[0][1]} at every {axis} tried"
        return Crossover(text=everywhere if complete else f"{known[0][1]} or undecided at every {axis} tried")
    if len(changes) > 1:
        return Crossover(text=f"{len(changes)} changes of sign along {axis}")
    (low, before), (high, _) = changes[0]
    return Crossover(low, high, f"{before} up to {axis}={_size(low)}, {changes[0][1][1]} from {_size(high)}")


def _size(x: float) -> str:
    """A size as it was written: whole numbers in full."""
    return str(int(x)) if x == int(x) else f"{x:g}"
