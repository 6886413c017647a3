"""Measures a crossover with real processes, writes every block down as it comes, and reads such a record back."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from flashperf import environment
from flashperf.blocks import Block
from flashperf.crossover.finder import SCAN_SIZES, Finding, OutOfTime, find
from flashperf.crossover.result import CrossoverResult, SideTimes
from flashperf.errors import EXIT_FAILED, UserError
from flashperf.progress import NullProgress, ProgressSink
from flashperf.records import Environment
from flashperf.store import RecordError, Records, RecordWriter, from_json, read_records
from flashperf.workers import Worker, WorkerPool

WORKERS = 8
SCAN_SHARE = 0.6  # of the time: what the scan may use before it stops at a smaller size
LEAST_SCANNED = 3


@dataclass(frozen=True)
class Plan:
    """What a crossover is of: names of the sides and the axis, what was fixed, and the range that was asked for."""

    names: tuple[str, str]
    axis: str
    subject: str
    low: int
    high: int
    mechanism: str = ""
    backend: str = ""
    dtype: str = ""
    fixed: Mapping[str, int | str] = field(default_factory=dict)


@dataclass
class Journal:
    """Blocks by stage, (worker, size); a stage is one request of the finder."""

    stages: list[dict[tuple[int, int], list[Block]]] = field(default_factory=list)
    sizes: list[list[int]] = field(default_factory=list)

    def log_ratios(self, stage: int, blocks: int, workers: int) -> np.ndarray:
        """Shape (workers, sizes that are whole, blocks); of the sizes asked for, those up to the first gap."""
        found = self.stages[stage]
        whole: list[list[list[float]]] = []
        for size in self.sizes[stage]:
            values = [
                [block.log_ratio for block in found.get((worker, size), [])] for worker in range(workers)
            ]
            if any(len(value) < blocks for value in values):
                break
            whole.append([value[:blocks] for value in values])
        return np.array(whole).reshape(len(whole), workers, blocks).transpose(1, 0, 2)

    def times(self) -> tuple[SideTimes, ...]:
        """Of every size: per worker the mean of logs over all its blocks, then over workers."""
        logs: dict[int, dict[int, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
        for stage in self.stages:
            for (worker, size), blocks in stage.items():
                logs[size][worker] += [(_mean_log(b, "A"), _mean_log(b, "B")) for b in blocks]
        return tuple(
            SideTimes(size, *np.exp(np.mean([np.mean(own, axis=0) for own in logs[size].values()], axis=0)))
            for size in sorted(logs)
        )


def _mean_log(block: Block, side: str) -> float:
    return float(np.mean([math.log(sample.wall_s) for sample in block.of(side)]))


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
        values = self.journal.log_ratios(stage, blocks, len(self.workers))
        if values.shape[1] < (min(LEAST_SCANNED, len(sizes)) if stage == 0 else len(sizes)):
            raise OutOfTime
        return values

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
        for number, worker in enumerate(self.workers):
            worker.call("prepare_size", size=size, check=number == 0)

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
) -> CrossoverResult:
    """Start the workers, find the crossings, and keep every block in ``record`` (a new file).

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
        with WorkerPool(workers, subject, options, {}, {}) as pool:
            session = Session(pool.workers, budget_s, seed, writer, told)
            finding = _found(session.measure, plan, budget_s)
        notes, journal = tuple(dict.fromkeys(session.notes)), session.journal
        seconds = time.monotonic() - began
        if writer:
            writer.write("end", seconds=seconds, notes=notes)
    finally:
        if writer:
            writer.close()
    return _result(plan, finding, journal, captured, seconds, notes)


def _found(measure: Callable[[Sequence[int], int], np.ndarray], plan: Plan, budget_s: float) -> Finding:
    try:
        return find(measure, plan.low, plan.high)
    except OutOfTime:
        least = min(LEAST_SCANNED, SCAN_SIZES)
        raise UserError(
            f"not even {least} sizes fit into {budget_s:g} s; give more time or a smaller range", EXIT_FAILED
        ) from None


def _result(
    plan: Plan,
    finding: Finding,
    journal: Journal,
    captured: Environment,
    seconds: float,
    notes: tuple[str, ...],
) -> CrossoverResult:
    asked = (plan.low, plan.high)
    return CrossoverResult(
        plan.names, plan.axis, plan.subject, asked, finding, journal.times(), captured, seconds, notes
    )


def replay(path: Path) -> tuple[Plan, CrossoverResult]:
    """The result of a record, found again from its blocks. Raises RecordError if it isn't one or doesn't fit."""
    records = read_records(path)
    head = next(records.of("crossover"), None)
    if head is None:
        raise RecordError(f"{path} is no record of a crossover (flashperf crossover writes them)")
    plan: Plan = from_json(Plan, head.get("plan"))
    workers = from_json(int, head.get("workers"))
    measure, journal = _recorded(records, workers)
    try:
        finding = find(measure, plan.low, plan.high)
    except OutOfTime:
        raise RecordError(f"{path} ends before three sizes were measured") from None
    end = next(records.of("end"), {})
    notes = (
        tuple(end.get("notes") or ("the run was interrupted",)) if not end else tuple(end.get("notes", ()))
    )
    captured: Environment = from_json(Environment, head.get("environment"))
    seconds = float(end.get("seconds", math.nan))
    return plan, _result(plan, finding, journal, captured, seconds, notes)


def _recorded(records: Records, workers: int) -> tuple[Callable[[Sequence[int], int], np.ndarray], Journal]:
    """A measure function that gives back what was measured, stage by stage, and its journal."""
    journal = Journal()
    for line in records.of("stage"):
        journal.stages.append(defaultdict(list))
        journal.sizes.append([from_json(int, size) for size in line.get("sizes", [])])
    for line in records.of("block"):
        stage = from_json(int, line.get("stage"))
        if not 0 <= stage < len(journal.stages):
            raise RecordError(f"{records.path}: a block of stage {stage}, which was never begun")
        key = from_json(int, line.get("worker")), from_json(int, line.get("size"))
        journal.stages[stage][key].append(from_json(Block, line.get("block")))
    asked = iter(range(len(journal.stages)))

    def measure(sizes: Sequence[int], blocks: int) -> np.ndarray:
        stage = next(asked, None)
        if stage is None:
            raise OutOfTime
        if journal.sizes[stage] != list(sizes):
            raise RecordError(
                f"{records.path}: stage {stage} measured other sizes than this version asks for"
            )
        values = journal.log_ratios(stage, blocks, workers)
        if values.shape[1] < (min(LEAST_SCANNED, len(sizes)) if stage == 0 else len(sizes)):
            raise OutOfTime
        return values

    return measure, journal
