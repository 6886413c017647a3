"""Mechanisms and what each predicts: rules that turn counts and side measurements into seconds. Pure.

A rule looks at a measured case and either says nothing, because what it rests on was not seen, or predicts how
many seconds slower a call of the optimised path should be if its mechanism were all. It never uses the
difference that it is to explain, except where that is said: there it argues by exclusion, and is weaker.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from flashperf.cases.measured import CaseMeasured, PairMeasured
from flashperf.units import seconds


@dataclass(frozen=True)
class Finding:
    """A mechanism, the seconds it predicts, on what grounds; ``by_exclusion``: it used the difference itself."""

    mechanism: str
    predicted_s: float
    because: str
    by_exclusion: bool = False


#: A size is another one from this factor on.
_OTHER_SIZE = 4.0

Rule = Callable[[CaseMeasured], Finding | None]


def useless_work(case: CaseMeasured) -> Finding | None:
    """More work is done than the baseline does: what it takes at the faster of both paths' rates."""
    base, other = case.pair.baseline, case.pair.other
    ratio = other.fact("work") / base.fact("work")
    if not ratio > 1.1:
        return None
    useful = other.fact("useful") / other.fact("work")
    because = f"it does {ratio:.3g} times the work of the baseline, and its result needs {useful:.0%} of that"
    spent = min((ratio - 1) * base.time_s.value, (1 - 1 / ratio) * other.time_s.value)
    return Finding("useless work", spent, because)


def fixed_cost(case: CaseMeasured) -> Finding | None:
    """A cost per call that doesn't depend on the size: as many seconds at another size, with other work."""
    base, other = case.pair.baseline, case.pair.other
    more = other.fact("dispatches") > 1.5 * base.fact("dispatches")
    counted = (other.fact(name) > max(base.fact(name), 0) for name in ("observed", "copied_bytes", "threads"))
    if more or any(counted):
        return None  # what differs has a count of its own, and the sizes may not be the work
    x = case.points[case.headline].x
    work = other.fact("work")
    apart = [
        (at, pair)
        for at, pair in case.along()
        if max(at / x, x / at) >= _OTHER_SIZE and pair.other.fact("work") != work
    ]
    if not apart:
        return None
    at, elsewhere = min(apart, key=lambda item: abs(math.log(item[0] / x)))
    because = (
        f"the difference is {seconds(elsewhere.difference_s)} at {case.axis}={at:g} and "
        f"{seconds(case.pair.difference_s)} at {case.axis}={x:g}: it does not grow with the work"
    )
    return Finding("fixed cost per call", elsewhere.difference_s, because)


def dispatch_count(case: CaseMeasured) -> Finding | None:
    """More operators are dispatched: each costs what one costs that does next to nothing."""
    base, other = case.pair.baseline, case.pair.other
    more = other.fact("dispatches") - base.fact("dispatches")
    nested = other.fact("nested") - base.fact("nested")
    if not more > 0.5 * base.fact("dispatches") or math.isnan(case.called_s + case.nested_s + nested):
        return None
    because = (
        f"{other.fact('dispatches'):.0f} operators are dispatched instead of {base.fact('dispatches'):.0f}; one that "
        f"does next to nothing takes {seconds(case.called_s)} from Python, {seconds(case.nested_s)} inside another"
    )
    return Finding("dispatch count", (more - nested) * case.called_s + nested * case.nested_s, because)


def no_hardware_path(case: CaseMeasured) -> Finding | None:
    """Narrow operands are slower than casting them to the wide type, computing, and casting back (by exclusion)."""
    cast = case.other("f16_cast_back") or case.other("cast_back")
    largest = case.along()[-1][1] if case.along() else case.pair
    if cast is None or not case.pair.other.fact("operand_bits") < case.pair.baseline.fact("operand_bits"):
        return None
    beyond = case.pair.other.time_s.value - cast.other.time_s.value
    if largest.ratio.ratio.low < 2 or beyond <= 0:
        return None
    because = (
        f"casting to the wide type and back takes {cast.ratio.ratio.value:.2f} of the baseline, and at the largest "
        f"size the narrow product takes {largest.ratio.ratio.value:.3g} times as long: no fast kernel for the type"
    )
    return Finding("no hardware path", beyond, because, by_exclusion=True)


def casts(case: CaseMeasured) -> Finding | None:
    """The casts around a product cost what the same product with casts around it costs more."""
    cast = case.other("f16_cast_back") or case.other("cast_back")
    if cast is None or cast.difference_s <= 0 or not case.pair.other.fact("casts") > 0:
        return None
    return Finding("casts", cast.difference_s, f"casts alone add {seconds(cast.difference_s)}")


def observing(case: CaseMeasured) -> Finding | None:
    """Something records every operator: a cost a + c per operator, from the points other than the diagnosed one."""
    here = case.pair.other.fact("observed")
    if not here > case.pair.baseline.fact("observed"):
        return None
    rest = [pair for x, pair in case.along() if x != case.points[case.headline].x]
    counts = [pair.other.fact("observed") for pair in rest]
    if len(set(counts)) < 2:
        return None
    slope, start = np.polyfit(counts, [pair.difference_s for pair in rest], 1)
    because = f"{here:.0f} operators are recorded at {seconds(float(slope))} each and {seconds(float(start))} a call"
    return Finding("cost of observing", float(start + slope * here), because)


def recompilation(case: CaseMeasured) -> Finding | None:
    """Calls that compile: what they took beyond a steady call, spread over all calls."""
    other = case.pair.other
    compiled, spent = other.fact("compilations"), other.parts_s.get("compiling", math.nan)
    if not compiled > 0 or not spent > 0:
        return None
    calls = other.fact("calls")
    because = f"{compiled:.3g} compilations in {calls:.0f} calls took {seconds(spent * calls)} of them"
    return Finding("recompilation", spent, because)


def oversubscription(case: CaseMeasured) -> Finding | None:
    """More threads than cores: the time beyond that of the same call with as many threads as cores."""
    here = case.pair.other
    if not here.fact("threads") > here.fact("cores"):
        return None
    fitting = [pair for _, pair in case.along() if pair.other.fact("threads") <= pair.other.fact("cores")]
    if not fitting:
        return None
    best = fitting[-1].other
    beyond = here.time_s.value - best.time_s.value
    if beyond <= 0:
        return None
    because = (
        f"{here.fact('threads'):.0f} threads on {here.fact('cores'):.0f} cores take {seconds(here.time_s.value)}, "
        f"{best.fact('threads'):.0f} threads {seconds(best.time_s.value)}"
    )
    return Finding("more threads than cores", beyond, because)


def waking_threads(case: CaseMeasured) -> Finding | None:
    """Handing work to threads and waiting for them: what it costs where there are as many threads as cores."""
    here = case.pair.other
    if not here.fact("threads") > case.pair.baseline.fact("threads"):
        return None
    rest = [pair for x, pair in case.along() if x != case.points[case.headline].x]
    fitting = [pair for pair in rest if pair.other.fact("threads") <= pair.other.fact("cores")]
    if not fitting or fitting[-1].difference_s <= 0:
        return None
    spent = fitting[-1].difference_s
    because = f"with as many threads as cores a call already takes {seconds(spent)} longer than with one"
    return Finding("waking threads", spent, because)


def transfer(case: CaseMeasured) -> Finding | None:
    """Data are copied before they are used: what the copies alone take."""
    other = case.pair.other
    copy_s = other.parts_s.get("copy", math.nan)
    if not other.fact("copied_bytes") > 0 or not copy_s > 0:
        return None
    rate = other.fact("copied_bytes") / copy_s / 1e9
    because = f"{other.fact('copied_bytes') / 1e6:.1f} MB are copied in {seconds(copy_s)}, {rate:.1f} GB/s"
    return Finding("transfer", copy_s, because)


def quantising(case: CaseMeasured) -> Finding | None:
    """Operands are quantised on every call: what that alone takes."""
    spent = case.pair.other.parts_s.get("quantise", math.nan)
    if not spent > 0:
        return None
    return Finding("quantising", spent, f"quantising alone takes {seconds(spent)}")


def unfit_kernel(case: CaseMeasured) -> Finding | None:
    """The same path wins on another shape, and its side work doesn't explain the loss on this one (by exclusion)."""
    spent = case.pair.other.parts_s.get("quantise", math.nan)
    wins = [pair for pair in case.controls() if pair.ratio.ratio.high < 0.9]
    beyond = case.pair.difference_s - spent
    if not wins or not spent >= 0 or beyond <= 0:
        return None
    because = (
        f"on a shape with as many rows the same kernel takes {wins[0].ratio.ratio.value:.2f} of the baseline; here "
        f"quantising is {spent / case.pair.other.time_s.value:.0%} of its time{_traffic(case.pair)}"
    )
    return Finding("kernel unfit for the shape", beyond, because, by_exclusion=True)


def _traffic(pair: PairMeasured) -> str:
    weights, result = pair.baseline.fact("weight_bytes"), pair.baseline.fact("result_bytes")
    if not weights + result > 0:
        return ""
    return f", and weights, which it makes smaller, are {weights / (weights + result):.0%} of the baseline's traffic"


RULES: tuple[Rule, ...] = (
    useless_work,
    fixed_cost,
    dispatch_count,
    no_hardware_path,
    casts,
    observing,
    recompilation,
    oversubscription,
    waking_threads,
    transfer,
    quantising,
    unfit_kernel,
)

#: What a diagnosis can name.
MECHANISMS = (
    "useless work",
    "fixed cost per call",
    "dispatch count",
    "no hardware path",
    "casts",
    "cost of observing",
    "recompilation",
    "more threads than cores",
    "waking threads",
    "transfer",
    "quantising",
    "kernel unfit for the shape",
)
