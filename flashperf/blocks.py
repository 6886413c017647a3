"""The double block: two sides timed in turn, ABBA and BAAB in random order, one log ratio out.

A fixed A B B A is biased (identical code came out 1.3-4.7 % "faster"), since the inner pair follows itself.
Random order, fresh buffers with a random side building first, and an untimed lead-in call of the same side
before every timed one bring the bias within its error (docs/measuring.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from flashperf.disturbance import NoProbe, Probe
from flashperf.stats import double_block_log_ratio, double_block_order
from flashperf.timers import SYSTEM_CLOCK, Clock, Sample, time_calls

Call = Callable[[], object]
#: Builds fresh buffers and returns the call that is bound to them.
Build = Callable[[], Call]

SIDES = "AB"
MAX_REPEATED_PAIRS = 4  # a block: on a machine that is always busy something has to be kept, and is counted
LARGEST_SWEEP_BYTES = 256 << 20


@dataclass(frozen=True)
class Block:
    """One double block: the side, wall and CPU seconds per call of its eight samples, in run order.

    repeated: pairs run again because a sample was disturbed; kept: disturbed samples among the eight.
    """

    order: str
    wall_s: tuple[float, ...]
    cpu_s: tuple[float, ...]
    repeated: int = 0
    kept: int = 0

    @property
    def log_ratio(self) -> float:
        """Mean log time of B minus mean log time of A."""
        return float(double_block_log_ratio(self.wall_s, self.order))

    def of(self, side: str) -> list[Sample]:
        """The four samples of side "A" or "B"."""
        return [
            Sample(w, c) for s, w, c in zip(self.order, self.wall_s, self.cpu_s, strict=True) if s == side
        ]


@dataclass
class BlockRunner:
    """Runs double blocks of two sides.

    calls: how many calls make a sample of side A and of side B. sweep: None for warm caches (an untimed
    call of the same side comes first), else what empties the caches before every sample.
    """

    build: tuple[Build, Build]
    calls: tuple[int, int]
    rng: np.random.Generator
    sweep: Callable[[], None] | None = None
    clock: Clock = SYSTEM_CLOCK
    probe: Probe = field(default_factory=NoProbe)

    def run(self) -> Block:
        """Fresh buffers on both sides, a random one first, then eight samples.

        Samples 0-1, 2-3, 4-5 and 6-7 are pairs of both sides; a pair with a disturbed sample is run again, at
        most MAX_REPEATED_PAIRS times a block.
        """
        order = double_block_order(self.rng)
        bound: dict[int, Call] = {}
        for side in self.rng.permutation(2):
            bound[int(side)] = self.build[int(side)]()
        samples: list[Sample] = []
        repeated = kept = 0
        while len(samples) < len(order):
            pair = [self._sample(bound, SIDES.index(order[len(samples) + n])) for n in range(2)]
            disturbed = sum(was_disturbed for _, was_disturbed in pair)
            if disturbed and repeated < MAX_REPEATED_PAIRS:
                repeated += 1
                continue
            kept += disturbed
            samples += [sample for sample, _ in pair]
        wall_s, cpu_s = tuple(s.wall_s for s in samples), tuple(s.cpu_s for s in samples)
        return Block(order, wall_s, cpu_s, repeated, kept)

    def _sample(self, bound: dict[int, Call], side: int) -> tuple[Sample, bool]:
        """One sample and whether something was stolen from it.

        Nothing comes between lead-in and timed call.
        """
        call = bound[side]
        if self.sweep is None:
            before = self.probe.read()
            call()
        else:
            self.sweep()
            before = self.probe.read()
        sample = time_calls(call, self.calls[side], self.clock)
        return sample, bool(self.probe.read() - before)


class CacheSweep:
    """Empties the caches by a pass over twice the last level, at most LARGEST_SWEEP_BYTES.

    ``state`` is what the record says: "cold", or "cold-64MiB" where the last level is larger than what a
    sweep can reach (shared server caches of hundreds of MB), so that only the inner levels are sure to be
    empty.
    """

    def __init__(self, last_level_bytes: int) -> None:
        wanted = 2 * last_level_bytes
        size = min(max(wanted, 1 << 20), LARGEST_SWEEP_BYTES)
        self._buffer = np.zeros(size // 8, dtype=np.int64)
        self.state = "cold" if wanted <= LARGEST_SWEEP_BYTES else f"cold-{size >> 20}MiB"

    def __call__(self) -> None:
        np.add(self._buffer, 1, out=self._buffer)
