"""Measured kernels under the roofs of their machine. Pure: all that a picture or a table is made of."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass, field

import numpy as np

from flashperf.records import Case, Cost, Interval, Placement
from flashperf.roofline import Roof, place, words
from flashperf.roofs.cold_check import ColdCheck
from flashperf.roofs.model import Roofs
from flashperf.stats import ratio_interval

WARM, COLD = "warm", "cold"


@dataclass(frozen=True)
class Point:
    """One case in one state of the caches: its declared work and the seconds per call of every process.

    number_format: what it multiplies in. ideal_bytes: the least that its mechanism has to move. role: "standard",
    "flash" or "". stand_in: what it stands for, where a CPU can only imitate it.
    """

    case_id: str
    cost: Cost
    ideal_bytes: int
    number_format: str
    cache: str
    role: str
    per_process_s: tuple[float, ...]
    stand_in: str = ""

    @functools.cached_property
    def case(self) -> Case:
        """The case."""
        return Case.parse(self.case_id)

    @property
    def size(self) -> str:
        """The sizes of the case in words."""
        return self.case_id.rpartition("/")[2].replace("-", "  ")

    @property
    def is_cold(self) -> bool:
        """Whether the caches were swept before each call."""
        return self.cache.startswith(COLD)

    @property
    def wants_threads(self) -> int:
        """How many threads the case asks for; 1 unless that is one of its sizes."""
        return int(dict(self.case.sizes).get("threads", 1))

    @property
    def group(self) -> str:
        """What is equal for variants that are compared: everything of the case but the variant, and the caches."""
        case = self.case
        return f"{case.mechanism}/{case.backend}/{case.dtype}/{self.case_id.rpartition('/')[2]}/{self.cache}"

    @property
    def seconds(self) -> Interval:
        """Per call: mean over processes (of logs) with its 95 % interval."""
        return ratio_interval(np.log(self.per_process_s))

    @property
    def flops_per_s(self) -> Interval:
        """The operations that it declares over the measured time."""
        time = self.seconds
        flops = self.cost.flops
        high = flops / time.low if time.low > 0 else np.inf
        return Interval(flops / time.value, flops / time.high, high, time.confidence)

    @property
    def intensity(self) -> tuple[float, float]:
        """FLOPs per byte that its kernels move, and per byte that they would have to at least."""
        moved, ideal = self.cost.bytes or np.nan, self.ideal_bytes or np.nan
        return self.cost.flops / moved, self.cost.flops / ideal

    @property
    def working_set_bytes(self) -> int:
        """What one of its kernels touches on average: how much of it a cache can hold decides what bounds it."""
        each = self.cost.bytes // max(1, self.cost.launches)
        return max(1, min(each, self.ideal_bytes) if self.ideal_bytes else each)

    def roof(self, roofs: Roofs) -> Roof:
        """What bounds it. Raises UserError for a format that no unit was measured in."""
        first_touch = self.ideal_bytes if self.is_cold else 0
        cold = min(first_touch, self.cost.bytes)
        threads = roofs.threads_for(self.wants_threads)
        written = self.cost.bytes_written
        return roofs.roof(self.number_format, self.cost.bytes, self.working_set_bytes, cold, threads, written)

    def place(self, roofs: Roofs) -> Placement:
        """Its place under its roof; above by more than both uncertainties is a model error."""
        time = self.seconds
        wide = time.high / time.value - 1 if np.isfinite(time.high) else 0.0
        roof = self.roof(roofs)
        return place(self.cost.flops, self.cost.bytes, time.value, roof, self.cost.launches, wide)

    def words(self, roofs: Roofs) -> str:
        """``memory-bound, 71 % of L2``."""
        return words(self.place(roofs), self.roof(roofs))


@dataclass(frozen=True)
class RooflineRun:
    """Roofs and everything that was measured under them.

    left_out: what couldn't be, and why. cold_check: how cold the caches were; None if that wasn't measured.
    """

    roofs: Roofs
    points: tuple[Point, ...]
    busy_reason: str = ""
    left_out: tuple[str, ...] = field(default_factory=tuple)
    cold_check: ColdCheck | None = None

    @property
    def mechanisms(self) -> list[str]:
        """Names of the mechanisms that have points, in the order of the points."""
        return list(dict.fromkeys(point.case.mechanism for point in self.points))

    def of(self, mechanism: str) -> list[Point]:
        """The points of one mechanism."""
        return [point for point in self.points if point.case.mechanism == mechanism]

    def listed(self, mechanism: str) -> list[Point]:
        """The points of one mechanism in the order of a table: by size, warm before cold."""
        points = self.of(mechanism)
        order = {size: n for n, size in enumerate(dict.fromkeys(p.size for p in points))}
        return sorted(points, key=lambda p: (order[p.size], p.is_cold))

    def only(self, mechanisms: list[str]) -> RooflineRun:
        """The same with some of the mechanisms."""
        chosen = tuple(point for point in self.points if point.case.mechanism in mechanisms)
        return dataclasses.replace(self, points=chosen)
