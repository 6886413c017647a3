"""Where a measurement lies under the roofs of its machine (Williams, Waterman, Patterson 2009). Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from flashperf.records import Placement

#: Below this part of its roof a kernel is said to be bound by none of them.
NEAR = 0.5


@dataclass(frozen=True)
class Roof:
    """What a machine can do at best, and where the figures come from ("measured: ...", a data sheet).

    flops_per_s for the dtype in question, bytes_per_s for the memory level in question (``name``), launch_s the
    least time that one kernel launch takes and call_s what a call takes beyond that (0: not a limit).
    ``compute_name`` says whose peak it is ("f32 fma"); ``uncertainty`` by what fraction the true roof may be
    higher.
    """

    name: str
    flops_per_s: float
    bytes_per_s: float
    source: str
    launch_s: float = 0.0
    call_s: float = 0.0
    compute_name: str = ""
    uncertainty: float = 0.0

    def __post_init__(self) -> None:
        if not (self.flops_per_s > 0 and self.bytes_per_s > 0 and self.launch_s >= 0 and self.call_s >= 0):
            raise ValueError(f"roof {self.name}: rates must be positive, the launch time not negative")


def place(
    flops: int,
    bytes: int,
    seconds: float,
    roof: Roof | None = None,
    launches: int = 1,
    uncertainty: float = 0.0,
) -> Placement:
    """Place one call that does ``flops`` operations on ``bytes`` bytes in ``seconds`` seconds.

    The least time is the largest of bytes / bandwidth, flops / peak and launches x launch time + call time;
    whichever it is names the bound, and the fraction is that time over the measured one. A fraction above 1
    can't be: it is reported as a model error (cost, roof or time is wrong), never clipped, once it is above by
    more than the uncertainty of the roof and that of the time (a fraction). Without a roof there are rates
    only: the fraction is NaN and the bound empty. Raises ValueError if nothing is done or the time is not
    positive.
    """
    if not (math.isfinite(seconds) and seconds > 0):
        raise ValueError(f"seconds must be positive and finite, not {seconds}")
    if flops < 0 or bytes < 0 or flops + bytes == 0:
        raise ValueError(f"a call needs work to be placed: {flops} FLOPs, {bytes} bytes")
    rates = (flops / seconds, bytes / seconds, flops / bytes if bytes else math.inf)
    if roof is None:
        return Placement(*rates, math.nan, "", "", "no roof measured")
    least_s = {
        "memory": bytes / roof.bytes_per_s,
        "compute": flops / roof.flops_per_s,
        "launch": launches * roof.launch_s + (roof.call_s if launches else 0.0),
    }
    bound = max(least_s, key=lambda name: least_s[name])
    fraction = least_s[bound] / seconds
    error = ""
    if fraction > (1 + roof.uncertainty) * (1 + uncertainty):
        error = f"{fraction:.3g} times what the {bound} roof allows: its declared work, the roof or its time is wrong"
    return Placement(*rates, fraction, bound, roof.name, roof.source, error)


def words(placement: Placement, roof: Roof | None = None) -> str:
    """The distance to the roof as it is said: ``memory-bound, 71 % of L2``."""
    percent = f"{100 * placement.fraction_of_roof:.0f} %"
    if placement.model_error:
        name = placement.roof if placement.bound == "memory" else placement.bound
        return f"model error: {placement.fraction_of_roof:.2f} x the {name} roof"
    if not placement.bound:
        return "no roof measured"
    if placement.bound == "launch":
        bound = "launch-bound" if placement.fraction_of_roof >= NEAR else "near no roof"
        return f"{bound}: {percent} of the time is dispatch"
    name = placement.roof
    if placement.bound == "compute":
        name = (roof.compute_name if roof else "") or "the peak"
    if placement.fraction_of_roof < NEAR:
        return f"near no roof: {percent} of {name}"
    return f"{placement.bound}-bound, {percent} of {name}"


def short_words(placement: Placement, roof: Roof | None = None) -> str:
    """The same for a narrow column: ``memory: 71 % of L2``; near no roof without the bound: ``16 % of L2``."""
    percent = f"{100 * placement.fraction_of_roof:.0f} %"
    if not placement.bound:
        return "no roof measured"
    name = {"memory": placement.roof.partition(" (")[0], "compute": roof.compute_name if roof else ""}
    of = f" of {name[placement.bound] or 'the peak'}" if placement.bound in name else " dispatch"
    if placement.model_error:
        return f"{placement.fraction_of_roof:.2f} x {of.removeprefix(' of').strip()} roof"
    return f"{placement.bound}: {percent}{of}" if is_bound(placement) else percent + of


def is_bound(placement: Placement) -> bool:
    """Whether it comes near enough to its roof to be said to be bound by it."""
    return placement.fraction_of_roof >= NEAR
