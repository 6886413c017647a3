"""Measures a crossover with real processes, and writes every block down as it comes."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from flashperf import environment
from flashperf.blocks import Block
from flashperf.crossover.finder import SCAN_SIZES, Finding, OutOfTime, find
from flashperf.crossover.journal import LEAST_SCANNED, Journal, Plan, result_of
from flashperf.crossover.result import CrossoverResult
from flashperf.errors import EXIT_FAILED, UserError
from flashperf.progress import NullProgress, ProgressSink
from flashperf.store import RecordWriter, from_json
from flashperf.workers import Worker, WorkerError, WorkerPool

WORKERS = 8
SCAN_SHARE = 0.6  # of the time: what the scan may use before it stops at a smaller size


class Session:
    """Asks the workers for blocks until the time is used up."""

    def __init__(
        self,
        workers: Sequence[Worker],
        budget_s: float,
        seed: int,
        writer: RecordWriter | None,
        progress: ProgressSink,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.workers, self.budget_s, self.journal = workers, budget_s, Journal()
        self._rng = np.random.default_rng(seed)
        self._writer, self._progress, self._now, self._began = writer, progress, now, now()
        self.notes: list[str] = []

    @property
    def spent_s(self) -> float:
        """Since the workers were ready."""
        return self._now() - self._began

    def measure(self, sizes: Sequence[int], blocks: int) -> np.ndarray:
        """As ``finder.Measure``: the first request is the scan, the others refine."""
        stage = len(self.journal.stages)
        self.journal.stages.append(defaultdict(list))
        self.journal.sizes.append(list(sizes))
        if self._writer:
            self._writer.write("stage", stage=stage, sizes=list(sizes), blocks=blocks)
        if stage == 0:
            self._scan(sizes, blocks)
        else:
            self._refine(stage, sizes, blocks)
        return self.journal.measured(stage, blocks, len(self.workers))

    def _scan(self, sizes: Sequence[int], blocks: int) -> None:
        """From the smallest size on, while the next is likely to fit into its share of the time."""
        took_s: list[float] = []
        for n, size in enumerate(sizes):
            likely_s = _next_s(sizes[: n + 1], took_s)
            if n >= LEAST_SCANNED and self.spent_s + likely_s > SCAN_SHARE * self.budget_s:
                self.notes.append(f"sizes above {sizes[n - 1]} were not measured: no time for them")
                return
            start = self._now()
            self._prepare(size)
            for _ in range(blocks):
                self._block_of_each(0, size)
            took_s.append(self._now() - start)
            self._tell(f"scan: {size}", n + 1, len(sizes))

    def _refine(self, stage: int, sizes: Sequence[int], blocks: int) -> None:
        """All sizes in random order, as often as there are blocks."""
        self._tell(f"refining between {sizes[0]} and {sizes[-1]}", 0, 1)
        for size in sizes:
            self._prepare(size)
        for _ in range(blocks):
            for n in self._rng.permutation(len(sizes)):
                if self.spent_s > self.budget_s:
                    self.notes.append("no time was left to refine a crossing")
                    raise OutOfTime
                self._block_of_each(stage, sizes[int(n)])

    def _prepare(self, size: int) -> None:
        """The first worker checks both sides; only when they are right do the others bind them."""
        try:
            for number, worker in enumerate(self.workers):
                worker.call("prepare_size", size=size, check=number == 0)
        except WorkerError as error:
            raise type(error)(f"at size {size}: {error}") from error

    def _block_of_each(self, stage: int, size: int) -> None:
        for number, worker in enumerate(self.workers):
            seed = int(self._rng.integers(1 << 31))
            answer = worker.call("block_at", size=size, seed=seed)
            self.journal.stages[stage][number, size].append(from_json(Block, answer))
            if self._writer:
                self._writer.write("block", stage=stage, worker=number, size=size, block=answer)

    def _tell(self, what: str, done: int, of: int) -> None:
        fraction = min(1.0, self.spent_s / self.budget_s)
        self._progress.update(fraction, max(0.0, self.budget_s - self.spent_s), [what, f"{done} of {of}"])


def _next_s(sizes: Sequence[int], took_s: Sequence[float]) -> float:
    """What the last of the sizes will take, going by how the time grew over the two before it."""
    if len(took_s) < 2:
        return took_s[-1] if took_s else 0.0
    slope = max(0.0, took_s[-1] - took_s[-2]) / (sizes[-2] - sizes[-3])
    return took_s[-1] + slope * (sizes[-1] - sizes[-2])


def run(
    plan: Plan,
    subject: str,
    options: Mapping[str, Any],
    *,
    budget_s: float,
    seed: int = 0,
    workers: int = WORKERS,
    record: Path | None = None,
    progress: ProgressSink | None = None,
    variables: Mapping[str, str] | None = None,
) -> CrossoverResult:
    """Start the workers, find the crossings, and keep every block in ``record`` (a new file).

    ``variables`` are added to the environment of the workers.

    Raises WrongResult if a side is wrong at any size, UserError for bad input and where not even three sizes fit
    into ``budget_s``, WorkerError if a process dies.
    """
    told = progress or NullProgress()
    captured = environment.capture(1)
    writer = RecordWriter(record) if record else None
    began = time.monotonic()
    try:
        told.phase("crossover", plan.subject)
        if writer:
            writer.write("crossover", plan=plan, workers=workers, seed=seed, environment=captured)
        with WorkerPool(workers, subject, options, {}, {}, variables) as pool:
            session = Session(pool.workers, budget_s, seed, writer, told)
            finding = _found(session.measure, plan, budget_s)
        notes, journal = tuple(dict.fromkeys(session.notes)), session.journal
        seconds = time.monotonic() - began
        if writer:
            writer.write("end", seconds=seconds, notes=notes)
    finally:
        if writer:
            writer.close()
    return result_of(plan, finding, journal, captured, seconds, notes)


def _found(measure: Callable[[Sequence[int], int], np.ndarray], plan: Plan, budget_s: float) -> Finding:
    try:
        return find(measure, plan.low, plan.high)
    except OutOfTime:
        least = min(LEAST_SCANNED, SCAN_SIZES)
        raise UserError(
            f"not even {least} sizes fit into {budget_s:g} s; give more time or a smaller range", EXIT_FAILED
        ) from None
