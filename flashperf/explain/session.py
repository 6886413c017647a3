"""Measuring an attribution: workers take turns, groups are run and recorded, until precise enough or out of time.

Every answer of a worker is written to the record before it is used, so a run that is stopped loses nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from flashperf.attribution import (
    CostModel,
    Group,
    Observation,
    SwitchLevels,
    attribute,
    confirmation_groups,
    cycle_groups,
    pairs_per_cycle,
    screen_interactions,
    shares_within,
)
from flashperf.deadline import Deadline
from flashperf.errors import UserError
from flashperf.progress import ProgressSink
from flashperf.records import Attribution, Interval
from flashperf.store import RecordWriter
from flashperf.workers import Worker, WorkerError, WorkerPool

#: Measuring ends early where every share is this well known: half of what a quiet machine must reach.
_ENOUGH_LOG, _ENOUGH_POINTS = 0.01, 1.5
#: A worker whose answer is this much overdue when the budget has ended is given up.
_GRACE_S = 5.0
#: The first round may take this part of what is left: isolated calls, interactions and advice come after it.
_FIRST_ROUND = 0.5
#: A cycle keeps one pair of these at least: with fewer, intervals are too wide to say much.
_FEWEST_PAIRS = 3
#: A run of a complement pair in runs: nearly always its mixture is new, and is bound and checked before.
_CHECKED_RUN = 1.8


@dataclass
class Session:
    """One attribution being measured. ``observations`` grows; ``stopped`` says why it ended.

    costs: what makes the shares' scatter small, once isolated calls are timed; pairs: of complements in a cycle
    """

    pool: WorkerPool
    switches: Sequence[SwitchLevels]
    writer: RecordWriter
    progress: ProgressSink
    deadline: Deadline
    seed: int
    verifies: bool = False
    observations: list[Observation] = field(default_factory=list)
    costs: CostModel | None = None
    pairs: int | None = None
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

    def plan(self) -> None:
        """Fewer complement pairs a cycle, their weights larger, where a whole one takes too much of the budget."""
        usual = pairs_per_cycle(self.k)
        if not usual:
            return
        worker, ends = self.pool.workers[0], [0, (1 << self.k) - 1]
        self._make_ready({worker: ends})
        runs = worker.ask("group", self.limit_s, masks=ends, lead_in=True)["runs"]
        run_s = sum(run["seconds"] for run in runs) / len(ends)
        cycle_s = _FIRST_ROUND * self.deadline.left_s / len(self.pool.workers)
        pairs = (cycle_s - 4 * self.k * run_s) / (2 * run_s * _CHECKED_RUN)
        self.pairs = min(usual, max(math.ceil(usual / _FEWEST_PAIRS), int(pairs)))

    def cycles(self, number: int, reserve_s: float) -> bool:
        """Cycle ``number`` of every worker, in random order. False if the time for it was not there.

        The first round is run as far as the budget goes, since nothing is known before; later ones only if all
        of it fits before ``reserve_s`` from the end.
        """
        count = len(self.pool.workers)
        if number and self.deadline.left_s - reserve_s < self.round_s * 1.1:
            return False
        order = [self.pool.workers[index] for index in self.rng(count, number).permutation(count)]
        for turn in range(0, count, 2):
            begin = self.deadline.elapsed_s
            couple = {worker: self._design(worker, number) for worker in order[turn : turn + 2]}
            self._make_ready({worker: masks_of(groups) for worker, groups in couple.items()})
            for worker, groups in couple.items():
                if not self._turn(worker, number, groups, reserve_s):
                    return False
            # The first round also checks every mixture that it meets for the first time.
            self._cycle_s = (self.deadline.elapsed_s - begin) / len(couple)
            self._report(f"cycle {number + 1}, worker {min(turn + 2, count)} of {count}", reserve_s)
        return True

    def _design(self, worker: Worker, cycle: int) -> list[Group]:
        """The groups of one cycle of one worker, whose memory is allocated anew."""
        rng = self.rng(worker.number, cycle)
        worker.ask("rebuild", seed=int(rng.integers(1 << 30)))
        return cycle_groups(self.k, rng, self.pairs)

    def _turn(self, worker: Worker, cycle: int, groups: Sequence[Group], reserve_s: float) -> bool:
        """One cycle of one worker. False if time ran out inside it."""
        for number, group in enumerate(groups):
            if self.deadline.left_s < reserve_s:
                return False
            self.run(worker, cycle, group, lead_in=number == 0)
        return True

    def run(self, worker: Worker, cycle: int, group: Group, lead_in: bool) -> None:
        """Run one group on one worker, record it and keep its observation."""
        answer = worker.ask("group", self.limit_s, masks=list(group.masks), lead_in=lead_in)
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

    def _make_ready(self, masks: Mapping[Worker, Sequence[int]]) -> None:
        """Bind the mixtures of some workers, all at once since nothing is timed; check those that none has run yet.

        The first two workers check for all: each has to compute the expected logits once.
        """
        if not self.verifies:
            return
        fresh = [mask for mask in dict.fromkeys(chain(*masks.values())) if mask not in self._verified]
        checkers = self.pool.workers[:2] if fresh else []
        for number, worker in enumerate(checkers):
            part = fresh[number :: len(checkers)]
            worker.send("call", method="check", arguments={"masks": part})
        for worker, own in masks.items():
            worker.send("call", method="bind", arguments={"masks": list(own)})
        failed: list[Exception] = []
        for worker in (*checkers, *masks):
            try:
                worker.receive(self.limit_s)
            except (WorkerError, UserError) as error:  # the other answers have to be read all the same
                failed.append(error)
        if failed:
            raise failed[0]
        self._verified.update(fresh)

    @property
    def limit_s(self) -> float:
        """Seconds that a worker's answer is waited for."""
        return max(self.deadline.left_s, 0.0) + _GRACE_S

    def confirm(self, reserve_s: float) -> None:
        """Fresh 2x2 blocks for the screened pairs, the most likely first: one per worker, a second if there is time."""
        pairs = [c.switches for c in screen_interactions(self.observations, self.k)]
        if not pairs:
            return
        self.progress.phase("interactions", "confirming the largest with fresh blocks")
        blocks = {
            worker.number: confirmation_groups(pairs, self.k, worker.number, self.rng(worker.number, 1 << 20))
            for worker in self.pool.workers
        }
        for number in range(len(blocks[0])):
            begin = self.deadline.elapsed_s
            for worker in self.pool.workers:
                if self.deadline.left_s < reserve_s:
                    return
                group = blocks[worker.number][number]
                self._make_ready({worker: masks_of([group])})
                self.run(worker, -1, group, lead_in=True)
            self._report("interactions", reserve_s)
            if self.deadline.left_s - reserve_s < (self.deadline.elapsed_s - begin) * 1.1:
                return

    def attribution(self, costs: CostModel | None = None) -> Attribution:
        """What is known so far; with ``costs`` more exactly, and at the price of fitting them for every worker."""
        return attribute(
            self.observations,
            self.switches,
            repeated=self.repeated,
            seconds=self.deadline.elapsed_s,
            stopped=self.stopped,
            costs=costs,
        )

    def precise(self) -> bool:
        """Whether every share is known well enough to stop before the budget is spent."""
        found = self.attribution(self.costs)
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


def masks_of(groups: Iterable[Group]) -> list[int]:
    """The mixtures that groups run, each once."""
    return list(dict.fromkeys(mask for group in groups for mask in group.masks))


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
        answer = worker.ask("group", session.limit_s, masks=masks, lead_in=True)
        session.writer.write("advice", worker=worker.number, bit=bit, masks=masks, **answer)
