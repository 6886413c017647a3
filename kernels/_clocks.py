"""One call by our clocks and by ``triton.testing.do_bench``, and what a difference between the two means.

``do_bench`` empties the L2 before each call, puts an event on either side of it, and takes a quantile over some
100 ms (its default is the mean, we ask for the median). Ours holds the stream until many calls are enqueued.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from flashperf.backends import available
from flashperf.errors import UserError
from flashperf.gpu.verdicts import Times, differ


@dataclass(frozen=True)
class BothClocks:
    """Seconds per call: ``ours`` by every clock of ours, ``do_bench_s`` the median of Triton's; why they differ."""

    ours: Times
    do_bench_s: float
    reasons: tuple[str, ...]


def why_they_differ(ours: Times, do_bench_s: float) -> tuple[str, ...]:
    """What lies between our warm time and do_bench's, in sentences; empty where they agree. Pure."""
    if not differ(do_bench_s, ours.event_s) and not differ(ours.event_s, do_bench_s):
        return ()
    cold_s = ours.cold_s if ours.cold_s is not None else ours.event_s
    found = []
    if differ(cold_s, ours.event_s):
        found.append(
            f"do_bench empties the L2 before each call: ours takes {_us(cold_s)} after a flush, "
            f"{_us(ours.event_s)} warm"
        )
    if differ(do_bench_s, cold_s):
        gap_s = do_bench_s - cold_s
        cause = (
            "launching takes longer than the call" if ours.enqueue_s > cold_s else "the launch lies between"
        )
        found.append(f"do_bench's events hold one call and {_us(gap_s)} of waiting for it: {cause}")
    elif differ(cold_s, do_bench_s):
        found.append(
            f"do_bench is {_us(cold_s - do_bench_s)} below ours after a flush, which nothing here explains"
        )
    return tuple(found)


def beside_do_bench(call: Callable[[], object], rep_ms: int = 100) -> BothClocks:
    """Time a bound call both ways on the GPU. Raises UserError without one, or without CuPy."""
    if reason := available("triton") or available("cuda"):
        raise UserError(f"nothing to time on: {reason}")
    from flashperf.gpu.clock import all_clocks
    from flashperf.gpu.cupy_events import CupyEvents

    ours, theirs_s = all_clocks(call, CupyEvents()), median_by_do_bench(call, rep_ms)
    return BothClocks(ours, theirs_s, why_they_differ(ours, theirs_s))


def median_by_do_bench(call: Callable[[], object], rep_ms: int = 100) -> float:
    """Seconds of a call by ``triton.testing.do_bench``."""
    from triton.testing import do_bench

    return float(do_bench(call, rep=rep_ms, return_mode="median")) * 1e-3


def _us(time_s: float) -> str:
    return f"{time_s * 1e6:.1f} us"
