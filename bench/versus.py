"""Times our kernel against somebody else's, in pairs, and prints one line per pair. A benchmark, not a test.

Each round runs both, in an order drawn at random, then both in the opposite order (ABBA): a drift of the clock or of
the load cancels in every round. The ratio is the median over rounds; the times shown are medians as well. Time is
what the calling thread spent on a core, so that another process on the same core counts for neither side; calls that
work on threads of their own cannot be compared like this.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

Call = Callable[[], object]


@dataclass(frozen=True)
class Row:
    """One comparison: seconds per call of both sides, and theirs / ours (above 1: ours is faster)."""

    name: str
    ours_s: float
    theirs_s: float
    ratio: float
    target: float | None

    @property
    def verdict(self) -> str:
        """``ok``, ``below``, or nothing where there is no target."""
        if self.target is None:
            return ""
        return "ok" if self.ratio >= self.target else "below"


def _seconds(call: Call, repeats: int) -> float:
    start = time.thread_time()
    for _ in range(repeats):
        call()
    return (time.thread_time() - start) / repeats


def _repeats(call: Call, sample_s: float) -> int:
    call()
    return max(1, round(sample_s / max(min(_seconds(call, 3) for _ in range(3)), 1e-7)))


def compare(
    name: str,
    ours: Call,
    theirs: Call,
    target: float | None = None,
    rounds: int = 15,
    sample_s: float = 0.003,
    seed: int = 0,
) -> Row:
    """Time both in ``rounds`` ABBA rounds of samples of about ``sample_s`` seconds each."""
    sides = {"ours": (ours, _repeats(ours, sample_s)), "theirs": (theirs, _repeats(theirs, sample_s))}
    rng = random.Random(seed)
    times: dict[str, list[float]] = {"ours": [], "theirs": []}
    for _ in range(rounds):
        order = ["ours", "theirs"]
        rng.shuffle(order)
        sample: dict[str, float] = {"ours": 0.0, "theirs": 0.0}
        for side in (*order, *reversed(order)):
            sample[side] += _seconds(*sides[side]) / 2
        for side, seconds in sample.items():
            times[side].append(seconds)
    ratio = statistics.median(t / o for o, t in zip(times["ours"], times["theirs"], strict=True))
    return Row(name, statistics.median(times["ours"]), statistics.median(times["theirs"]), ratio, target)


def print_header(ours: str = "ours", theirs: str = "torch") -> None:
    """The column titles; ratio = theirs / ours."""
    print(f"{'':44} {ours:>12} {theirs:>12} {'ratio':>7} {'target':>7}")


def print_row(row: Row) -> None:
    """One comparison: times in microseconds, ratio, target, verdict."""
    target = "" if row.target is None else f"{row.target:.2f}"
    times = f"{row.ours_s * 1e6:9.1f} us {row.theirs_s * 1e6:9.1f} us"
    print(f"{row.name:44} {times} {row.ratio:7.2f} {target:>7} {row.verdict}".rstrip(), flush=True)


def print_alone(name: str, call: Call, n_bytes: int, rounds: int = 15) -> None:
    """The median time of something that has nothing to be compared with, and the bytes it moves per second."""
    repeats = _repeats(call, 0.003)
    seconds = statistics.median(_seconds(call, repeats) for _ in range(rounds))
    print(f"{name:44} {seconds * 1e6:9.1f} us {n_bytes / seconds / 1e9:9.1f} GB/s", flush=True)


def print_skipped(name: str, reason: str) -> None:
    """A comparison that cannot be made here."""
    print(f"{name:44} skipped: {reason}", flush=True)
