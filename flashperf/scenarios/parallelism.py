"""parallelism: a block split over two ranks by sequence, by width or by position: what is gained, what is talk?

Fresh groups of two processes over gloo; each group is one estimate. Efficiency is the time of one rank alone over
twice the time of two: 100 % if two are twice as fast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from flashperf.cases.guards import cores_at_least, torch_installed
from flashperf.records import Comparison, Interval
from flashperf.scenarios.definition import Cell, Findings, Line, Quantity, Recorder, Scenario, Table, Total
from flashperf.scenarios.pairs import MARGIN
from flashperf.scenarios.ranks import run_ranks
from flashperf.stats import compare_log_ratios, exp_interval, t_interval

RANKS = 2
LEAST_GROUPS, MOST_GROUPS = 2, 10
LENGTHS = (128, 512, 1024)
ROUNDS = 3
_LIMIT_S = 150.0
_MODULE = "flashperf.scenarios.parallel_worker"


def measure(run: Recorder) -> None:
    """Groups, one after another, until the budget is spent."""
    spent_s = 0.0
    for number in range(MOST_GROUPS):
        if number >= LEAST_GROUPS and run.left_s < 1.1 * spent_s / number:
            return
        begin_s = run.left_s
        options = {"seed": run.seed + number, "lengths": LENGTHS, "rounds": ROUNDS}
        for line in run_ranks(_MODULE, RANKS, options, _LIMIT_S):
            run.write(line.pop("kind"), group=number, **line)
        run.tell(f"group {number + 1}")
        spent_s += begin_s - run.left_s


def analyse(lines: Sequence[Line]) -> Findings:
    """Per length and strategy: two ranks over one, efficiency, and the part of the time spent in collectives."""
    groups: dict[tuple[int, str], dict[int, list[Line]]] = {}
    for line in lines:
        if line["kind"] == "times":
            groups.setdefault((line["length"], line["strategy"]), {}).setdefault(line["group"], []).append(
                line
            )
    rows, totals = [], []
    for (length, strategy), own in sorted(groups.items()):
        if len(own) < 2:
            continue
        cells, found = _row(length, strategy, list(own.values()))
        rows.append(cells)
        if length == max(LENGTHS):
            what = f"{strategy} parallel on {RANKS} ranks / one rank, {length} tokens"
            totals.append(Total(what, found.ratio, found.verdict))
    columns = ("length", "split by", "time", "two ranks / one", "efficiency", "in collectives")
    note = "data: sequences; tensor: heads and hidden units; sequence: positions. Waiting for the other rank is talk."
    tables = (Table("A Llama-like block on two ranks", columns, tuple(rows), note),) if rows else ()
    gaps = ("NCCL: no GPU was used; the same code under torchrun has never been run",)
    return Findings(tuple(totals), tables, (), gaps)


def _row(length: int, strategy: str, groups: Sequence[Sequence[Line]]) -> tuple[tuple[Cell, ...], Comparison]:
    """A row, and two ranks against one; each group of processes is one estimate."""

    def mean(value: Callable[[Line], float]) -> list[float]:
        return [float(np.mean([value(line) for line in lines])) for lines in groups]

    logs = mean(lambda line: float(np.log(line["split_s"] / line["alone_s"])))
    found = compare_log_ratios(logs, MARGIN)
    cells: tuple[Cell, ...] = (
        str(length),
        strategy,
        Quantity(t_interval(mean(lambda line: line["split_s"])), "s"),
        Quantity(found.ratio, "ratio"),
        Quantity(efficiency(logs), "fraction"),
        Quantity(t_interval(mean(lambda line: line["split_talking_s"] / line["split_s"])), "fraction"),
    )
    return cells, found


def efficiency(log_ratios: Sequence[float]) -> Interval:
    """Time of one rank / (ranks x time of all), from log(time of all / time of one) of every group."""
    return exp_interval(t_interval([-value - float(np.log(RANKS)) for value in log_ratios]))


SCENARIO = Scenario(
    name="parallelism",
    question="A block split over two ranks by sequence, by width or by position: what is gained, what is talk?",
    claims=("A7",),
    measure=measure,
    analyse=analyse,
    requires=(torch_installed, cores_at_least(2)),
)
