"""A dummy pipeline whose causes of slowness are known: the subject of the attribution's self-check.

Eight switches: one burns time, one touches bytes, two interact as a pair, three have a further effect only
together (third order), one saves time. ``planted_log_times`` is the truth; ``DummyPipeline`` really does it.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from flashperf.attribution import Group, Observation, SwitchLevels, attribute, cycle_groups, shapley
from flashperf.noise import single_threaded
from flashperf.records import Attribution, Interval

SWITCHES = tuple(
    SwitchLevels(name, "off", "on")
    for name in ("burn", "touch", "pair_a", "pair_b", "triple_a", "triple_b", "triple_c", "saves")
)
K = len(SWITCHES)
#: Extra time, as a fraction of Standard's, wherever all of these switches are at flash.
CAUSES: tuple[tuple[tuple[str, ...], float], ...] = (
    (("burn",), 0.30),
    (("touch",), 0.20),
    (("pair_a",), 0.10),
    (("pair_b",), 0.10),
    (("pair_a", "pair_b"), 0.30),
    (("triple_a",), 0.08),
    (("triple_b",), 0.08),
    (("triple_c",), 0.08),
    (("triple_a", "triple_b", "triple_c"), 0.40),
    (("saves",), -0.10),
)
BASE_S = 0.0005  # Standard's time in the burnt version: a group fits into one time slice of a busy machine
BUFFER_BYTES = 1 << 17
MAX_REPEATS = 5


def mask_of(names: Sequence[str]) -> int:
    """The mixture with these switches at flash."""
    return sum(1 << n for n, switch in enumerate(SWITCHES) if switch.name in names)


def planted_log_times() -> np.ndarray:
    """log T(S) / T(Standard) of every mixture, shape (2**k,)."""
    masks = np.arange(1 << K)
    extra = sum(amount * (masks & mask_of(names) == mask_of(names)) for names, amount in CAUSES)
    return np.log1p(extra)


class DummyPipeline:
    """The planted causes burnt on this machine: a calibrated spin, and passes over a buffer for ``touch``.

    Times are those of the quiet moment of calibration; a busy machine stretches them as it would any work.
    """

    def __init__(self) -> None:
        self.buffer = np.zeros(BUFFER_BYTES // 4, dtype=np.float32)
        self.loops_per_s = self._rate(lambda: self._spin(10_000), 10_000)
        self.passes_per_s = self._rate(lambda: self._touch(10), 10)

    @staticmethod
    def _spin(loops: int) -> None:
        while loops:
            loops -= 1

    def _touch(self, passes: int) -> None:
        for _ in range(passes):
            self.buffer += 1.0

    @staticmethod
    def _rate(work: Callable[[], None], amount: int) -> float:
        """Amount of work per second, by the fastest of several tries: interference only ever adds."""
        times = []
        for _ in range(30):
            start = time.perf_counter()
            work()
            times.append(time.perf_counter() - start)
        return amount / min(times)

    def run(self, mask: int) -> float:
        """One call of a mixture; its wall time in seconds."""
        spin = 1.0 + sum(
            amount
            for names, amount in CAUSES
            if names != ("touch",) and mask & mask_of(names) == mask_of(names)
        )
        touch = dict(CAUSES)[("touch",)] if mask & mask_of(["touch"]) else 0.0
        loops, passes = round(spin * BASE_S * self.loops_per_s), round(touch * BASE_S * self.passes_per_s)
        start = time.perf_counter()
        self._spin(loops)
        self._touch(passes)
        return time.perf_counter() - start


def _undisturbed(pipeline: DummyPipeline, group: Group) -> tuple[list[float], int]:
    """Times of a group, repeated while the scheduler took the processor away from it; and how often it was.

    Repeated on that evidence, never on the times, which would bias them. If no try is undisturbed the first
    of the least disturbed counts. A short sleep before each gives the process a fresh time slice.
    """
    tries: list[tuple[int, list[float]]] = []
    while len(tries) <= MAX_REPEATS and not (tries and tries[-1][0] == 0):
        time.sleep(BASE_S)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
        pipeline.run(group.masks[0])  # lead-in, untimed
        seconds = [pipeline.run(mask) for mask in group.masks]
        tries.append((resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw - before, seconds))
    return min(tries, key=lambda each: each[0])[1], len(tries) - 1


def run_worker(cycles: int, seed: int) -> list[dict]:
    """Whole cycles of the burnt pipeline in this process, as plain data (one entry per group)."""
    rng = np.random.default_rng(seed)
    rows = []
    for cycle in range(cycles):
        pipeline = DummyPipeline()  # fresh buffers every cycle, so that placement averages inside the worker
        for group in cycle_groups(K, rng):
            seconds, repeats = _undisturbed(pipeline, group)
            rows.append({"cycle": cycle, **vars(group), "seconds": seconds, "repeats": repeats})
    return rows


@dataclass(frozen=True)
class RealRow:
    """A burnt cause: the planted ratio (of a quiet machine) and what was measured."""

    name: str
    planted_ratio: float
    share: Interval

    @property
    def direction(self) -> str:
        """ "right", "wrong", or "unclear" where the interval holds 1."""
        if self.share.low <= 1 <= self.share.high:
            return "unclear"
        return "right" if (self.share.value > 1) == (self.planted_ratio > 1) else "wrong"


@dataclass(frozen=True)
class RealReport:
    """A self-check with causes really burnt; only directions are judged."""

    rows: tuple[RealRow, ...]
    attribution: Attribution

    @property
    def passed(self) -> bool:
        """No share confidently on the wrong side of 1, and at least one on the right side."""
        directions = [row.direction for row in self.rows]
        return "wrong" not in directions and "right" in directions

    def lines(self) -> list[str]:
        """The report as text, a line per row."""
        result = self.attribution
        text = [f"{result.runs} calls of {result.workers} processes, {result.repeated} groups repeated"]
        text += ["", f"{'planted':<10}{'ratio':>8}{'measured':>10}   {'95 % interval':<16}  direction"]
        for row in self.rows:
            interval = f"{row.share.low:.3f} to {row.share.high:.3f}"
            planted = f"{row.name:<10}{row.planted_ratio:>8.3f}"
            text.append(f"{planted}{row.share.value:>10.3f}   {interval:<16}  {row.direction}")
        verdict = "passed" if self.passed else "FAILED"
        return [*text, "", *result.notes, f"{verdict} (directions only), {result.seconds:.0f} s"]


def selfcheck_real(
    workers: int = 8, cycles: int = 2, seed: int = 0, progress: Callable[[int, int], None] | None = None
) -> RealReport:
    """Burn the planted causes in fresh processes, one after another, and attribute what was measured."""
    start = time.perf_counter()
    observations: list[Observation] = []
    repeated = 0
    for worker in range(workers):
        command = [sys.executable, "-m", "flashperf.planted", str(cycles), str(seed + worker)]
        output = subprocess.run(command, env=single_threaded(), check=True, capture_output=True, text=True)
        for row in json.loads(output.stdout):
            group = Group(row["kind"], row["switch"], tuple(row["masks"]), row["weight"])
            observations.append(Observation(worker, row["cycle"], group, tuple(row["seconds"])))
            repeated += row["repeats"]
        if progress:
            progress(worker + 1, workers)
    seconds = time.perf_counter() - start
    result = attribute(observations, SWITCHES, repeated=repeated, seconds=seconds, stopped="planned")
    truth = np.exp(shapley(planted_log_times())).tolist()
    rows = [
        RealRow(share.switch, ratio, share.share) for share, ratio in zip(result.shares, truth, strict=True)
    ]
    return RealReport(tuple(rows), result)


if __name__ == "__main__":
    print(json.dumps(run_worker(int(sys.argv[1]), int(sys.argv[2]))))
