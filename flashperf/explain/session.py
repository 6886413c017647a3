"""Measuring an attribution: workers take turns, groups are run and recorded, until precise enough or out of time.

Every answer of a worker is written to the record before it is used, so a run that is stopped loses nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from flashperf.attribution import (
    Group,
    Observation,
    SwitchLevels,
    attribute,
    confirmation_groups,
    cycle_groups,
    screen_interactions,
    shares_within,
)
from flashperf.deadline import Deadline
from flashperf.progress import ProgressSink
from flashperf.records import Attribution, Interval
from flashperf.store import RecordWriter
from flashperf.workers import Worker, WorkerPool

#: Measuring ends early where every share is this well known: half of what a quiet machine must reach.
_ENOUGH_LOG, _ENOUGH_POINTS = 0.01, 1.5
#: A worker whose answer is this much overdue when the budget has ended is given up.
_GRACE_S = 5.0


@dataclass
class Session:
    """One attribution being measured. ``observations`` grows; ``stopped`` says why it ended."""

    pool: WorkerPool
    switches: Sequence[SwitchLevels]
    writer: RecordWriter
    progress: ProgressSink
    deadline: Deadline
    seed: int
    verifies: bool = False
    observations: list[Observation] = field(default_factory=list)
    repeated: int = 0
    stopped: str = "budget"
    _verified: set[int] = field(default_factory=set)
    _cycle_s: float = 0.0

    @property
    def round_s(self) -> float:
        """Seconds that a cycle of every worker takes, by the last one."""
        return self._cycle_s * len(self.pool.workers)

    @property
    def k(self) -> int:
        """Active switches: bits of a mask."""
        return sum(switch.active for switch in self.switches)

    def rng(self, worker: int, cycle: int) -> np.random.Generator:
        """The random numbers of one worker's cycle, from the seed alone."""
        return np.random.default_rng((self.seed, worker, cycle))

    def cycles(self, number: int, reserve_s: float) -> bool:
        """Cycle ``number`` of every worker, in random order. False if the time for it was not there.

        The first round is run as far as the budget goes, since nothing is known before; later ones only if all
        of it fits before ``reserve_s`` from the end.
        """
        count = len(self.pool.workers)
        if number and self.deadline.left_s - reserve_s < self.round_s * 1.1:
            return False
        for turn, index in enumerate(self.rng(count, number).permutation(count)):
            begin = self.deadline.elapsed_s
            if not self._turn(self.pool.workers[index], number, reserve_s):
                return False
            # The first cycle also checks every mixture that it meets for the first time.
            self._cycle_s = self.deadline.elapsed_s - begin
            self._report(f"cycle {number + 1}, worker {turn + 1} of {count}", reserve_s)
        return True

    def _turn(self, worker: Worker, cycle: int, reserve_s: float) -> bool:
        """One cycle of one worker. False if time ran out inside it."""
        rng = self.rng(worker.number, cycle)
        worker.ask("rebuild", seed=int(rng.integers(1 << 30)))
        for number, group in enumerate(cycle_groups(self.k, rng)):
            if self.deadline.left_s < reserve_s:
                return False
            self.run(worker, cycle, group, lead_in=number == 0)
        return True

    def run(self, worker: Worker, cycle: int, group: Group, lead_in: bool) -> None:
        """Run one group on one worker, record it and keep its observation."""
        limit_s = max(self.deadline.left_s, 0.0) + _GRACE_S
        fresh = [mask for mask in dict.fromkeys(group.masks) if mask not in self._verified]
        if self.verifies and fresh:
            worker.call("check", limit_s, masks=fresh)
            self._verified.update(fresh)
        answer = worker.ask("group", limit_s, masks=list(group.masks), lead_in=lead_in)
        self.writer.write(
            "group",
            worker=worker.number,
            cycle=cycle,
            group=group.kind,
            switch=group.switch,
            masks=list(group.masks),
            weight=group.weight,
            **answer,
        )
        self.repeated += answer["repeats"] * len(group.masks)
        seconds = tuple(run["seconds"] for run in answer["runs"])
        self.observations.append(Observation(worker.number, cycle, group, seconds))

    def confirm(self, reserve_s: float) -> None:
        """Fresh 2x2 blocks for the screened pairs: half of them per worker, the other half if there is time."""
        if self.k < 2:
            return
        pairs = [c.switches for c in screen_interactions(self.observations, self.k)]
        if not pairs:
            return
        self.progress.phase("interactions", "confirming the largest with fresh blocks")
        rounds = 2 if self.k > 2 else 1
        halves: dict[int, list[list[Group]]] = {}
        for worker in self.pool.workers:
            groups = confirmation_groups(pairs, self.k, worker.number, self.rng(worker.number, 1 << 20))
            halves[worker.number] = [groups[: len(pairs)], groups[len(pairs) :]]
        begin = self.deadline.elapsed_s
        for half in range(rounds):
            if half and self.deadline.left_s - reserve_s < (self.deadline.elapsed_s - begin) * 1.1:
                return
            for worker in self.pool.workers:
                for number, group in enumerate(halves[worker.number][half]):
                    if self.deadline.left_s < reserve_s:
                        return
                    self.run(worker, -1, group, lead_in=number == 0)
                self._report("interactions", reserve_s)

    def attribution(self, **predictions: Any) -> Attribution:
        """What is known so far."""
        return attribute(
            self.observations,
            self.switches,
            repeated=self.repeated,
            seconds=self.deadline.elapsed_s,
            stopped=self.stopped,
            **predictions,
        )

    def precise(self) -> bool:
        """Whether every share is known well enough to stop before the budget is spent."""
        found = self.attribution()
        if found.workers < len(self.pool.workers):
            return False
        return shares_within(found, _ENOUGH_LOG, _ENOUGH_POINTS)

    def _report(self, detail: str, reserve_s: float) -> None:
        lines = [detail]
        try:
            found = self.attribution()
        except ValueError:
            pass  # nothing can be estimated yet
        else:
            lines.append(f"total {_ratio(found.total)}")
            lines += [f"{share.switch} {_ratio(share.share)}" for share in found.shares if share.active]
        done = self.deadline.elapsed_s / max(self.deadline.budget_s, 1e-9)
        self.progress.update(min(done, 1.0), max(self.deadline.left_s, 0.0), lines)


def _ratio(interval: Interval) -> str:
    if interval.high == math.inf:
        return f"×{interval.value:.3f}"  # one worker: no interval yet
    return f"×{interval.value:.3f} [{interval.low:.3f}, {interval.high:.3f}]"


def measure_advice(session: Session, bit: int, reserve_s: float) -> None:
    """Run Flash with one switch back at standard, beside Flash and Standard, on every worker."""
    everything = (1 << session.k) - 1
    mixture = everything ^ (1 << bit)
    for worker in session.pool.workers:
        if session.deadline.left_s < reserve_s:
            return
        masks = [everything, mixture, 0, 0, mixture, everything]
        answer = worker.ask("group", masks=masks, lead_in=True)
        session.writer.write("advice", worker=worker.number, bit=bit, masks=masks, **answer)
