"""A comparison in words and numbers, as it is printed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from flashperf.records import Placement
from flashperf.units import rate, seconds

if TYPE_CHECKING:
    from flashperf.compare import CompareResult

INTERPRETED = "Triton interprets its kernels here: that checks them, and says nothing about their times"
_VERDICTS = {
    "faster": "{b} is faster than {a}",
    "slower": "{b} is slower than {a}",
    "equivalent": "{b} and {a} take the same time within {margin:.3g} %",
    "unresolved": "can't tell whether {b} is faster than {a}",
}


def lines(result: CompareResult) -> Iterator[str]:
    """The text of a result, line by line."""
    comparison, names = result.comparison, result.names
    sentence = _VERDICTS[comparison.verdict].format(a=names[0], b=names[1], margin=100 * comparison.margin)
    ratio = comparison.ratio
    if INTERPRETED in result.notes:
        yield INTERPRETED  # before a verdict that must not be read as one
    yield (
        f"{sentence}: {ratio.value:.3f} of the time of {names[0]} "
        f"({ratio.confidence:.0%} interval {ratio.low:.3f} to {ratio.high:.3f}; "
        f"{comparison.blocks} blocks, {comparison.processes} process{'es' * (comparison.processes > 1)})"
    )
    if comparison.reason:
        yield f"  {comparison.reason}"
    width = max(map(len, names))
    for n, name in enumerate(names):
        check = result.checks[n]
        text = f"  {name:<{width}}  {seconds(result.time_s[n].value):>8} per call"
        text += f", first call {seconds(result.prepared.first_call_s[n])}"
        text += f", error {check.max_abs_error:.2g} (limit {check.limit:.2g})"
        yield text + (_placed(result.placements[n]) if result.placements else "")
    yield f"  reference: {result.prepared.reference}; caches {result.prepared.cache}"
    blocks = [block for own in result.blocks for block in own]
    noise = disturbances(
        sum(b.repeated for b in blocks), sum(b.kept for b in blocks), sum(len(b.wall_s) for b in blocks)
    )
    where = result.environment
    yield (
        f"  start-up {seconds(result.start_s)}, timing {seconds(result.measured_s)}; "
        f"{where.device}, {where.threads} thread{'s' * (where.threads > 1)}"
    )
    yield f"  {noise}"
    if where.busy:
        yield f"  the machine is busy: {where.busy_reason}"
    for note in result.notes:
        if note != INTERPRETED:
            yield f"  {note}"


def disturbances(repeated_pairs: int, kept: int, samples: int) -> str:
    """``456 samples, 60 of them disturbed by the machine but kept; 218 more pairs were ... run again``."""
    text = f"{samples} samples, {kept or 'none'} of them disturbed by the machine" + " but kept" * bool(kept)
    if repeated_pairs:
        were = "pair was" if repeated_pairs == 1 else "pairs were"
        text += f"; {repeated_pairs} more {were} disturbed, left out and run again"
    return text


def _placed(placement: Placement) -> str:
    rates = ((placement.flops_per_s, "FLOP/s"), (placement.bytes_per_s, "B/s"))
    text = "".join(f", {rate(value, unit)}" for value, unit in rates if value)
    if placement.bound:
        text += f", {placement.fraction_of_roof:.0%} of the {placement.bound} roof ({placement.roof})"
    return text + (f", model error: {placement.model_error}" if placement.model_error else "")
