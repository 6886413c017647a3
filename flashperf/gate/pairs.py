"""Process pairs: a worker of each side, both alive, timed in turns under this parent. The strongest test there is.

A double block is ABBA and BAAB in random order, on fresh buffers of both sides; its log ratio is free of what the
machine does more slowly than a block. A pair's estimate is the 20 % trimmed mean of its blocks.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from flashperf.errors import UserError
from flashperf.gate.sampling import BLOCKS, SamplePlan, plan_samples
from flashperf.stats import double_block_log_ratio, double_block_order, trimmed_mean
from flashperf.workers import SubjectError, Worker, WorkerError

START_TIMEOUT_S = 300.0
SIDES = ("before", "now")


@dataclass(frozen=True)
class Tree:
    """Where one side's code comes from: the environment of its workers, its subject and the subject's options."""

    label: str
    options: Mapping[str, Any]
    environment: Mapping[str, str] = field(default_factory=dict)
    subject: str = "flashperf.gate.side:Side"


@dataclass(frozen=True)
class PairTimes:
    """One bench: a log ratio per pair, and all seconds per call of each side, by pair and in run order.

    disturbed: chunks that were timed again since the process had been taken off its core.
    """

    log_ratios: tuple[float, ...]
    before_s: tuple[tuple[float, ...], ...]
    now_s: tuple[tuple[float, ...], ...]
    plan: SamplePlan
    disturbed: int = 0


@dataclass(frozen=True)
class SidesNames:
    """What each side can time (in its order) and what it can't, with the reason."""

    ready: tuple[tuple[str, ...], tuple[str, ...]]
    skipped: tuple[Mapping[str, str], Mapping[str, str]]


class BenchFailed(Exception):  # noqa: N818 - it is an outcome
    """A bench that raised on one side; ``side`` is 0 before, 1 now."""

    def __init__(self, side: int, why: str) -> None:
        super().__init__(why)
        self.side = side


class Pairs:
    """Running pairs of workers. A context manager: leaving it ends every process.

    plant: (kind, fraction) by which the second side is slowed, for the gate's own test; None: nothing.
    """

    def __init__(
        self, trees: tuple[Tree, Tree], seed: int = 0, plant: tuple[str, float] | None = None
    ) -> None:
        self.plant = plant
        self._trees = trees
        self._rng = np.random.default_rng(seed)
        self._pairs: list[tuple[Worker, Worker]] = []
        self._lost: set[int] = set()
        self._number = 0
        self.start_s = 0.0

    def __enter__(self) -> Pairs:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self._pairs)

    def start(self, count: int) -> None:
        """Start more pairs. Raises WorkerError or UserError if a side can't start."""
        began = time.monotonic()
        fresh: list[tuple[Worker, Worker]] = []
        try:
            for _ in range(count):
                fresh.append((self._worker(0), self._worker(1)))
                self._pairs.append(fresh[-1])
            for pair in fresh:
                for side, worker in enumerate(pair):
                    self._receive(worker, side)
        except BaseException:
            self.close()
            raise
        self.start_s += time.monotonic() - began

    def _worker(self, side: int) -> Worker:
        tree = self._trees[side]
        worker = Worker(self._number, tree.environment)
        self._number += 1
        worker.send("start", subject=tree.subject, options=dict(tree.options), standard={}, flash={})
        return worker

    def _receive(self, worker: Worker, side: int) -> Any:
        try:
            return worker.receive(START_TIMEOUT_S)
        except WorkerError as error:
            raise UserError(f"{self._trees[side].label}: {error}") from error

    def names(self) -> SidesNames:
        """What the first pair can time."""
        found = [self._pairs[0][side].call("names") for side in range(2)]
        return SidesNames(
            (tuple(found[0]["ready"]), tuple(found[1]["ready"])), (found[0]["skipped"], found[1]["skipped"])
        )

    def measure(
        self, name: str, pairs: Sequence[int], pair_budget_s: float, blocks: int = BLOCKS
    ) -> PairTimes:
        """Double blocks of one bench by the pairs of these numbers, ``pair_budget_s`` seconds each.

        A block each, in random order, until all are done, so that every pair sees the whole time. Raises
        BenchFailed if a side raises or dies, or gives a wrong result.
        """
        one_s = [self._prepare(name, number) for number in pairs]
        slowest_s = [min(times[side] for times in one_s) for side in range(2)]
        plan = plan_samples(max(slowest_s), pair_budget_s, blocks)
        if self.plant is not None:
            kind, fraction = self.plant
            for number in pairs:
                for side, seconds in enumerate((0.0, fraction * min(slowest_s))):
                    self._ask(number, side, "plant", kind=kind, seconds=seconds)
        disturbed = 0
        ratios: list[list[float]] = [[] for _ in pairs]
        times: list[tuple[list[float], list[float]]] = [([], []) for _ in pairs]
        for _ in range(plan.blocks):
            for place in self._rng.permutation(len(pairs)):
                ratio, before, now, again = self._block(pairs[int(place)], plan)
                disturbed += again
                ratios[int(place)].append(ratio)
                times[int(place)][0].extend(before)
                times[int(place)][1].extend(now)
        for number in pairs:
            for side in range(2):
                self._ask(number, side, "finish")
        return PairTimes(
            tuple(trimmed_mean(ratio) for ratio in ratios),
            tuple(tuple(before) for before, _ in times),
            tuple(tuple(now) for _, now in times),
            plan,
            disturbed,
        )

    def windows(self, pairs: Sequence[int], seconds: float, calls: int) -> list[list[list[float]]]:
        """Samples in a row of the bench measured last, seconds per call, shape (2, pairs, samples).

        All of one side, then all of the other, as tools measure that don't take turns.
        """
        return [
            [self._ask(number, side, "window", seconds=seconds, calls=calls) for number in pairs]
            for side in range(2)
        ]

    def _prepare(self, name: str, number: int) -> tuple[float, float]:
        for worker in self._pairs[number]:  # both at once: nothing is timed yet
            worker.send("call", method="prepare", arguments={"name": name})
        answers = [self._answer(number, side) for side in range(2)]
        for answer in answers:
            if isinstance(answer, BenchFailed):
                raise answer
        return answers[0]["one_s"], answers[1]["one_s"]

    def _block(self, number: int, plan: SamplePlan) -> tuple[float, list[float], list[float], int]:
        """One double block: log ratio, seconds of each side, chunks repeated."""
        order = double_block_order(self._rng)
        for side in self._rng.permutation(2):
            self._ask(number, int(side), "fresh")
        size = {"calls": plan.calls, "chunks": plan.chunks}
        samples = [self._ask(number, "AB".index(letter), "sample", **size) for letter in order]
        seconds = [sample["seconds"] for sample in samples]
        before, now = (
            [s for s, letter in zip(seconds, order, strict=True) if letter == side] for side in "AB"
        )
        disturbed = sum(int(sample["disturbed"]) for sample in samples)
        return float(double_block_log_ratio(seconds, order)), before, now, disturbed

    def _answer(self, number: int, side: int) -> Any:
        """What a worker answers; an error comes back as BenchFailed, so that the other side can be heard first."""
        try:
            return self._pairs[number][side].receive()
        except (WorkerError, UserError) as error:
            return self._failed(number, side, error)

    def _ask(self, number: int, side: int, method: str, **arguments: Any) -> Any:
        worker = self._pairs[number][side]
        try:
            return worker.call(method, **arguments)
        except (WorkerError, UserError) as error:
            raise self._failed(number, side, error) from error

    def _failed(self, number: int, side: int, error: Exception) -> BenchFailed:
        """The outcome; a worker that is gone, or whose answer may still come, is replaced with its partner."""
        text = str(error)
        if isinstance(error, SubjectError):
            text = text.partition(" failed: ")[2] or text
        elif isinstance(error, WorkerError):
            self._lost.add(number)
        return BenchFailed(side, text)

    def heal(self) -> None:
        """Fresh workers for the pairs that lost one."""
        for number in sorted(self._lost):
            for worker in self._pairs[number]:
                worker.stop()
            self._pairs[number] = (self._worker(0), self._worker(1))
            for side, worker in enumerate(self._pairs[number]):
                self._receive(worker, side)
        self._lost.clear()

    def close(self) -> None:
        """End every worker."""
        for pair in self._pairs:
            for worker in pair:
                worker.stop()
        self._pairs = []
