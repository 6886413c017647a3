"""What was measured of a crossover, as it stands in memory and in a record; a record gives its result again."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from flashperf.blocks import Block
from flashperf.crossover.finder import Finding, OutOfTime, find
from flashperf.crossover.result import CrossoverResult, SideTimes
from flashperf.records import Environment
from flashperf.store import RecordError, Records, from_json, read_records

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

    def measured(self, stage: int, blocks: int, workers: int) -> np.ndarray:
        """As ``log_ratios``. Raises OutOfTime if a scan has not even LEAST_SCANNED sizes, a refinement not all."""
        asked = len(self.sizes[stage])
        values = self.log_ratios(stage, blocks, workers)
        if values.shape[1] < (min(LEAST_SCANNED, asked) if stage == 0 else asked):
            raise OutOfTime
        return values

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


def result_of(
    plan: Plan,
    finding: Finding,
    journal: Journal,
    captured: Environment,
    seconds: float,
    notes: tuple[str, ...],
) -> CrossoverResult:
    """The finding with everything that is printed beside it."""
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
    return plan, result_of(plan, finding, journal, captured, seconds, notes)


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
        return journal.measured(stage, blocks, workers)

    return measure, journal
