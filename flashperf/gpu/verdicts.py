"""Pure rules of timing on a GPU: which samples to drop, and what it means where three clocks disagree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

#: A sample whose SM clock is below this share of the fastest one seen was throttled.
THROTTLED_BELOW = 0.95
#: At most this share of the samples is dropped: on a GPU that is always slowed down something has to remain.
MOST_DROPPED = 0.5
#: Two times that differ by less agree; an event resolves half a microsecond.
AGREE_WITHIN, RESOLUTION_S = 0.15, 0.5e-6


@dataclass(frozen=True)
class Kept:
    """Samples that remain, seconds; how many were dropped, and how many throttled ones had to be kept."""

    samples_s: tuple[float, ...]
    dropped: int = 0
    throttled_kept: int = 0

    @property
    def note(self) -> str:
        """What the record says about it; empty if nothing was throttled."""
        if not self.dropped and not self.throttled_kept:
            return ""
        return f"{self.dropped} throttled samples dropped, {self.throttled_kept} kept"


def drop_throttled(samples_s: Sequence[float], clocks_mhz: Sequence[float | None]) -> Kept:
    """Drop samples at a reduced SM clock: on that evidence and never on their time.

    The lowest clocks go first, at most MOST_DROPPED of all. A sample whose clock is not known stays. Raises
    ValueError if the two have different lengths.
    """
    if len(samples_s) != len(clocks_mhz):
        raise ValueError(f"{len(samples_s)} samples, but {len(clocks_mhz)} clocks")
    known = [clock for clock in clocks_mhz if clock]
    limit = THROTTLED_BELOW * max(known, default=0.0)
    slow = [i for i, clock in enumerate(clocks_mhz) if clock and clock < limit]
    slow.sort(key=lambda i: clocks_mhz[i] or 0.0)
    dropped = set(slow[: int(MOST_DROPPED * len(samples_s))])
    kept = tuple(s for i, s in enumerate(samples_s) if i not in dropped)
    return Kept(kept, len(dropped), len(slow) - len(dropped))


@dataclass(frozen=True)
class Times:
    """One call by every clock, seconds per call.

    event_s:   between two events on the stream, with everything enqueued before any of it ran
    host_s:    wall time of many calls up to the end of their work
    enqueue_s: wall time of the same calls until the last of them had returned
    graph_s:   of many calls recorded in one graph; None where it can't be recorded (``no_graph`` says why)
    cold_s:    as event_s, with the L2 flushed before; flush_s is what the flush itself takes
    """

    event_s: float
    host_s: float
    enqueue_s: float
    graph_s: float | None = None
    no_graph: str = ""
    cold_s: float | None = None
    flush_s: float | None = None
    timer: str = ""
    kept: Kept = Kept(())


def differ(a: float, b: float) -> bool:
    """Whether a is longer than b by more than the clocks' own error."""
    return a - b > max(AGREE_WITHIN * b, RESOLUTION_S)


def explain(times: Times) -> list[str]:
    """What the disagreements between the clocks mean, in sentences; empty where they agree.

    The order is that of what to mend first: a wrong number, then what bounds the call.
    """
    found = []
    waited_s = times.host_s - times.enqueue_s  # the device's work that was left when the host was done
    if differ(waited_s, times.event_s):
        found.append(
            f"wrong stream: the device works {_us(waited_s)} on after the last call, the events saw "
            f"{_us(times.event_s)}: part of the work is on a stream that they aren't on"
        )
    elif differ(times.host_s, times.event_s) and times.host_s < 1.5 * times.enqueue_s:
        found.append(
            f"launch-bound: the host needs {_us(times.enqueue_s)} to enqueue what the device does in "
            f"{_us(times.event_s)}"
        )
    if times.graph_s is not None and differ(times.event_s, times.graph_s):
        found.append(
            f"gaps between launches: {_us(times.event_s)} one by one, {_us(times.graph_s)} in a graph"
        )
    if times.graph_s is not None and differ(times.graph_s, times.event_s):
        found.append(
            f"the graph is slower, {_us(times.graph_s)} for {_us(times.event_s)}: the device overlapped calls "
            "that the graph has one after the other, or the graph was uploaded while it was timed"
        )
    return found + _about_flush(times)


def _about_flush(times: Times) -> list[str]:
    if times.cold_s is None or not times.flush_s:
        return []
    added = times.cold_s - times.event_s
    if added > 0.8 * times.flush_s:
        return [
            f"flush leak: emptying the L2 adds {_us(added)} to the call and takes {_us(times.flush_s)} itself: "
            "it is inside the timed region"
        ]
    if differ(times.event_s, times.cold_s):
        return [
            f"the flush has no effect, or warms: {_us(times.cold_s)} after it, {_us(times.event_s)} without"
        ]
    return []


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us"


def median(samples_s: Sequence[float]) -> float:
    """The median; NaN of nothing."""
    return float(np.median(samples_s)) if len(samples_s) else float("nan")
