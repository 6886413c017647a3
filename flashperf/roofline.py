"""Where a measurement lies under the roofs of its machine (Williams, Waterman, Patterson 2009). Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from flashperf.records import Placement


@dataclass(frozen=True)
class Roof:
    """What a machine can do at best, and where the figures come from ("measured: ...", a data sheet).

    flops_per_s for the dtype in question, bytes_per_s for the memory level in question, launch_s the least
    time that one kernel launch takes (0: not a limit).
    """

    name: str
    flops_per_s: float
    bytes_per_s: float
    source: str
    launch_s: float = 0.0

    def __post_init__(self) -> None:
        if not (self.flops_per_s > 0 and self.bytes_per_s > 0 and self.launch_s >= 0):
            raise ValueError(f"roof {self.name}: rates must be positive, the launch time not negative")


def place(flops: int, bytes: int, seconds: float, roof: Roof | None = None, launches: int = 1) -> Placement:
    """Place one call that does ``flops`` operations on ``bytes`` bytes in ``seconds`` seconds.

    The least time is the largest of bytes / bandwidth, flops / peak and launches x launch time; whichever
    it is names the bound, and the fraction is that time over the measured one. A fraction above 1 can't be:
    it is reported as a model error (cost, roof or time is wrong), never clipped. Without a roof there are
    rates only: the fraction is NaN and the bound empty. Raises ValueError if nothing is done or the time is
    not positive.
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
        "launch": launches * roof.launch_s,
    }
    bound = max(least_s, key=lambda name: least_s[name])
    fraction = least_s[bound] / seconds
    error = ""
    if fraction > 1:
        error = f"{fraction:.3g} times what the {bound} roof allows: the cost, the roof or the time is wrong"
    return Placement(*rates, fraction, bound, roof.name, roof.source, error)
