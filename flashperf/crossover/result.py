"""A crossover as it is printed: the answer, the rule that goes into code, the costs on both sides. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from flashperf.crossover.finder import Crossing, Finding
from flashperf.crossover.fit import CostFit, fit_cost
from flashperf.records import Environment, Interval
from flashperf.units import seconds


@dataclass(frozen=True)
class SideTimes:
    """Seconds per call of both sides at one size: means of logs over processes."""

    size: int
    a_s: float
    b_s: float


@dataclass(frozen=True)
class Part:
    """A stretch of the axis with one answer: from its first size on, ``use``. ``either`` up to ``sure_from``."""

    first: int
    sure_from: int
    use: str


@dataclass(frozen=True, repr=False)
class CrossoverResult:
    """Which of two variants to use at which size; ``print`` it.

    names: of a and b. axis: what the sizes are. subject: what was fixed. times: of every size measured.
    seconds: how long it all took. notes: what cut it short or disturbed it.
    """

    names: tuple[str, str]
    axis: str
    subject: str
    asked: tuple[int, int]
    finding: Finding
    times: tuple[SideTimes, ...]
    environment: Environment
    seconds: float
    notes: tuple[str, ...] = ()

    @property
    def range(self) -> tuple[int, int]:
        """The first and the last size that were scanned."""
        return self.finding.scan[0].size, self.finding.scan[-1].size

    def name(self, side: str) -> str:
        """The variant behind "a" or "b"."""
        return self.names["ab".index(side)]

    @property
    def parts(self) -> tuple[Part, ...]:
        """What to use from which size on; empty where that can't be told."""
        finding, first = self.finding, self.range[0]
        if finding.kind == "none":
            return (Part(first, first, self.name(finding.faster)),)
        if finding.kind == "unresolved":
            return ()
        parts = [Part(first, first, self.name(finding.crossings[0].below))]
        parts += [Part(switch_size(c), c.high, self.name(c.above)) for c in finding.crossings]
        return tuple(parts)

    @property
    def fits(self) -> tuple[CostFit, CostFit] | None:
        """Fixed and per-size cost of both sides; None from a single size."""
        if len(self.times) < 2:
            return None
        sizes = [point.size for point in self.times]
        return fit_cost(sizes, [p.a_s for p in self.times]), fit_cost(sizes, [p.b_s for p in self.times])

    @property
    def answer(self) -> str:
        """The answer in a sentence."""
        return _answer(self)

    @property
    def rule(self) -> str:
        """The rule as a line of Python; empty where there is none."""
        return _rule(self, repr, "variant = {choice}", "{use} if {axis} < {size} else {rest}")

    @property
    def rule_cpp(self) -> str:
        """The rule as a line of C++; empty where there is none."""
        return _rule(self, json.dumps, "const char* variant = {choice};", "{axis} < {size} ? {use} : {rest}")

    def __str__(self) -> str:
        return "\n".join(lines(self))

    __repr__ = __str__


def switch_size(crossing: Crossing) -> int:
    """The size from which on the other side is used: the estimate, or the middle of a bracket (of logs)."""
    middle = crossing.value if crossing.value is not None else (crossing.low * crossing.high) ** 0.5
    return max(crossing.low + 1, round(middle))


def _answer(result: CrossoverResult) -> str:
    finding, (a, b), axis = result.finding, result.names, result.axis
    low, high = result.range
    span = f"{axis} = {low} to {high}"
    if finding.kind == "none":
        other = b if finding.faster == "a" else a
        factors = [_advantage(point.ratio, finding.faster) for point in finding.scan]
        reach = f"by a factor of {min(factors):.3g} to {max(factors):.3g}"
        return f"no crossing: {result.name(finding.faster)} is faster than {other} at all of {span}, {reach}"
    if finding.kind == "unresolved":
        assert finding.unknown is not None
        start, end = finding.unknown
        known = f"; elsewhere {result.name(finding.faster)} is faster" if finding.faster else ""
        return f"can't tell which is faster between {axis} = {start} and {end}{known}"
    if len(finding.crossings) == 1:
        return f"{a} and {b} cross {_where(finding.crossings[0], axis)}"
    count = {2: "twice", 3: "three times"}.get(len(finding.crossings), f"{len(finding.crossings)} times")
    return f"{a} and {b} cross {count}: " + "; ".join(_where(c, axis) for c in finding.crossings)


def _advantage(ratio: Interval, faster: str) -> float:
    return ratio.value if faster == "a" else 1 / ratio.value


def _where(crossing: Crossing, axis: str) -> str:
    if crossing.resolved and crossing.value is not None:
        return f"at {axis} = {crossing.value:.3g} (95 % interval {crossing.low} to {crossing.high})"
    return f"between {axis} = {crossing.low} and {crossing.high}"


def _rule(result: CrossoverResult, quoted: Callable[[str], str], statement: str, test: str) -> str:
    parts = result.parts
    if not parts:
        return ""
    text = quoted(parts[-1].use)
    for part, after in zip(parts[-2::-1], parts[:0:-1], strict=True):
        text = test.format(axis=result.axis, size=after.first, use=quoted(part.use), rest=text)
    return statement.format(choice=text)


def advice_words(result: CrossoverResult) -> str:
    """``split below 190, fused above 240, either between``."""
    parts, crossings = result.parts, result.finding.crossings
    if not parts:
        return "no rule"
    if len(parts) == 1:
        high = result.range[1]
        return f"{parts[0].use} " + ("everywhere" if high == result.asked[1] else f"up to {high}")
    words = [f"{parts[0].use} below {crossings[0].low}"]
    for number, part in enumerate(parts[1:]):
        until = f" to {crossings[number + 1].low}" if number + 1 < len(crossings) else ""
        words.append(
            f"{part.use} " + (f"from {part.sure_from}{until}" if until else f"above {part.sure_from}")
        )
    return ", ".join(words) + ", either between"


def lines(result: CrossoverResult) -> Iterator[str]:
    """The text of a result, line by line."""
    yield f"{result.subject}: {result.answer}"
    if result.rule:
        yield f"  use {advice_words(result)}"
        yield f"  in code: {result.rule}"
        yield f"  in C++:  {result.rule_cpp}"
    for name, fit in zip(result.names, result.fits or (), strict=False):
        yield f"  {name}: {cost_words(fit, result.axis)}"
    yield (
        f"  {len(result.times)} sizes from {result.range[0]} to {result.range[1]}, "
        f"{result.finding.workers} processes, {result.seconds:.0f} s, {result.environment.device}"
    )
    yield from (f"  {note}" for note in result.notes)
    if result.environment.busy:
        yield f"  the machine is busy: {result.environment.busy_reason}"


def cost_words(fit: CostFit, axis: str) -> str:
    """``1.2 µs + 0.44 µs per row (a line is off by 6 %)``."""
    one = axis.removesuffix("s") if axis != "axis" else "step of it"
    return (
        f"about {seconds(fit.fixed_s)} + {seconds(fit.per_unit_s)} per {one} "
        f"(a straight line is off by {100 * fit.residual:.0f} %)"
    )
