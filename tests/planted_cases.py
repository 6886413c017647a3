"""Made-up measurements of cases: one for every mechanism that a diagnosis can name."""

from __future__ import annotations

from collections.abc import Mapping

from flashperf.cases.definition import CONTROL, SWEEP
from flashperf.cases.measured import CaseMeasured, PairMeasured, PathMeasured, PointMeasured
from flashperf.records import Comparison, Interval

Facts = Mapping[str, float]
NONE: Facts = {}


def path(time_s: float, facts: Facts = NONE, parts: Facts = NONE) -> PathMeasured:
    return PathMeasured(Interval(time_s, 0.98 * time_s, 1.02 * time_s), facts, parts)


def pair(base: PathMeasured, other: PathMeasured, sure: bool = True) -> PairMeasured:
    """A pair whose ratio is that of the times, within 3 % if it is ``sure``, else within a factor of 30."""
    ratio, spread = other.time_s.value / base.time_s.value, 1.03 if sure else 30.0
    low, high = ratio / spread, ratio * spread
    verdict = "slower" if low > 1 else "faster" if high < 1 else "equivalent" if sure else "unresolved"
    return PairMeasured("fast", base, other, Comparison(Interval(ratio, low, high), verdict, 12, 6, 0.05))


def point(x: float, measured: PairMeasured, role: str = SWEEP, **others: PairMeasured) -> PointMeasured:
    return PointMeasured(f"n={x:g}", x, role, {"fast": measured, **others})


def case(
    *points: PointMeasured, headline: int = 0, called_s: float = 1e-6, nested_s: float = 2e-7
) -> CaseMeasured:
    return CaseMeasured("fast", headline, points, "n", called_s, nested_s)


def linear(x: float, fixed_s: float, each_s: float = 1e-9) -> float:
    return fixed_s + each_s * x


def fixed_cost() -> CaseMeasured:
    sizes = (100, 10_000, 1_000_000)
    return case(*(point(n, pair(path(linear(n, 2e-6)), path(linear(n, 20e-6, 4e-10)))) for n in sizes))


def useless_work() -> CaseMeasured:
    base, padded = {"work": 1e6, "useful": 1e6}, {"work": 8e6, "useful": 1e6}
    return case(point(256, pair(path(1e-3, base), path(7e-3, padded))))


def dispatch_count() -> CaseMeasured:
    few, many = {"dispatches": 100.0, "nested": 90.0}, {"dispatches": 10_100.0, "nested": 10_000.0}
    return case(point(500, pair(path(1e-3, few), path(3.1e-3, many))))


def no_hardware_path(narrow_s: float = 50e-3, cast_s: float = 1.1e-3) -> CaseMeasured:
    wide, narrow = {"operand_bits": 32.0}, {"operand_bits": 16.0, "casts": 0.0}
    measured = pair(path(1e-3, wide), path(narrow_s, narrow))
    cast = pair(path(1e-3, wide), path(cast_s, {"operand_bits": 16.0, "casts": 1.0}))
    return case(point(500, measured, f16_cast_back=cast))


def casts() -> CaseMeasured:
    facts = {"operand_bits": 32.0, "casts": 1.0}
    measured = pair(path(1e-3), path(2e-3, facts))
    return case(point(500, measured, cast_back=pair(path(1e-3), path(1.9e-3, facts))))


def observing() -> CaseMeasured:
    def at(n: float) -> PointMeasured:
        seen = {"observed": 2.0 * n}
        return point(n, pair(path(1e-6 * n, {"observed": 0.0}), path(1e-6 * n + 300e-6 + 4e-6 * n, seen)))

    return case(at(60), at(180), at(540), headline=1)


def recompilation() -> CaseMeasured:
    facts = {"calls": 20.0, "compilations": 2.0}
    return case(point(22, pair(path(1e-4), path(80e-3, facts, {"compiling": 79.9e-3}))))


def threads(at_cores_s: float, above_s: float) -> CaseMeasured:
    def at(count: float, time_s: float) -> PointMeasured:
        facts = {"threads": count, "cores": 4.0}
        return point(count, pair(path(5e-6, {"threads": 1.0, "cores": 4.0}), path(time_s, facts)))

    return case(at(4, at_cores_s), at(16, above_s), headline=1)


def transfer() -> CaseMeasured:
    facts = {"copied_bytes": 16e6}
    return case(point(1, pair(path(1e-3), path(3e-3, facts, {"copy": 1.9e-3}))))


def quantising(spent_s: float = 0.5e-3, other_s: float = 1.6e-3, control_ratio: float = 0.3) -> CaseMeasured:
    measured = pair(path(1e-3), path(other_s, NONE, {"quantise": spent_s}))
    control = pair(path(1e-3), path(control_ratio * 1e-3, NONE, {"quantise": 1e-6}))
    return case(point(200, measured), point(200, control, CONTROL))


PLANTED = {
    "useless work": useless_work(),
    "fixed cost per call": fixed_cost(),
    "dispatch count": dispatch_count(),
    "no hardware path": no_hardware_path(),
    "casts": casts(),
    "cost of observing": observing(),
    "recompilation": recompilation(),
    "more threads than cores": threads(6e-6, 90e-6),
    "waking threads": threads(80e-6, 90e-6),
    "transfer": transfer(),
    "quantising": quantising(),
    "kernel unfit for the shape": quantising(spent_s=1e-6, other_s=1.4e-3),
}
