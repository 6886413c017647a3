"""pinning: who does which rows of ragged work, on which cores, with how many threads, and beside whom?

Variants of the mechanism of the same name (``flashperf/mechanisms/pinning.py``), in fresh processes: undisturbed,
beside a busy neighbour on the first core, and under a CPU quota. Within a condition every variant stands against
the work queue with as many free threads as cores.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from flashperf.blocks import BlockRunner
from flashperf.disturbance import NoProbe
from flashperf.environment import usable_cores
from flashperf.measure import bind_case
from flashperf.mechanisms.pinning import MECHANISM
from flashperf.records import Case
from flashperf.scenarios.definition import (
    Cell,
    Findings,
    Line,
    Quantity,
    Recorder,
    Scenario,
    Table,
    Total,
    cores_text,
)
from flashperf.scenarios.neighbour import Neighbour, can_bind
from flashperf.scenarios.pairs import blocks_by, compared, percentile_s, side_times
from flashperf.scenarios.quota import Quota, QuotaError
from flashperf.store import to_json
from flashperf.timers import calibrate
from flashperf.workers import Worker

WORKERS = 6
LEAST_WORKERS = 2  # of every condition, also where the budget has ended: no interval comes from one
MOST_ROUNDS = 6
_SIZES = {"rows": 512, "values": 1 << 22, "longest": 1 << 16}
#: Long enough that a block takes more time than a period of the scheduler's quota.
_LEAST_SAMPLE_S = 20e-3
_BASE = "work_queue"
_QUIET, _NEIGHBOUR, _QUOTA = "undisturbed", "neighbour", "quota"


class PinningSubject:
    """Pairs of pinning cases in one process."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._runners: dict[tuple[str, int, int], BlockRunner] = {}

    def prepare(self, variant: str, threads: int, base_threads: int) -> float:
        """Bind the work queue and a variant, check both; the largest error. Raises WrongResult."""
        cases = case_of(_BASE, base_threads, self.seed), case_of(variant, threads, self.seed)
        bound = [bind_case(MECHANISM, case) for case in cases]
        calls = [calibrate(side.call, least_s=_LEAST_SAMPLE_S)[0] for side in bound]
        build = [(lambda problem=side.problem: problem.bind()[0]) for side in bound]
        # Involuntary switches are what this is about: no pair is run again because of one.
        runner = BlockRunner(
            (build[0], build[1]), (calls[0], calls[1]), np.random.default_rng(), probe=NoProbe()
        )
        self._runners[variant, threads, base_threads] = runner
        return max(side.check.max_abs_error for side in bound)

    def block(self, variant: str, threads: int, base_threads: int, seed: int) -> dict[str, Any]:
        """One double block; A is the work queue."""
        runner = self._runners[variant, threads, base_threads]
        runner.rng = np.random.default_rng(seed)
        return to_json(runner.run())


def case_of(variant: str, threads: int, seed: int) -> Case:
    """A pinning case of this scenario's size."""
    return Case.of("pinning", variant, "cpu", "f32", {**_SIZES, "threads": threads}, seed)


def pairs_for(cores: int, bind_problem: str) -> list[tuple[str, int, int]]:
    """(variant, threads, threads of the work queue beside it): policies first, then thread counts."""
    wide = max(2, cores)
    bound = [] if bind_problem or cores == 1 else ["pinned_queue", "pinned_partition"]
    policies = ["static_partition", *bound]
    counts = dict.fromkeys((1, 2, wide, 2 * wide, 4 * wide))
    return [(policy, wide, wide) for policy in policies] + [(_BASE, n, wide) for n in counts if n != wide]


def measure(run: Recorder) -> None:
    """All conditions that can be had here; the others are gaps."""
    cores, problem = usable_cores(), can_bind()
    pairs = pairs_for(cores, problem)
    run.write("plan", cores=cores, pairs=pairs)
    if problem:
        run.write("gap", what="bound threads", why=problem)
    if cores == 1:
        run.write("gap", what="pinning", why="one core: where a thread runs can't make a difference")
    with _workers(run.seed) as workers:
        errors = [worker.call("prepare", **_arguments(pair)) for worker in workers for pair in pairs]
        run.write("checked", max_abs_error=max(errors))
        budget_s = run.left_s
        ends_s = [budget_s * (1 - share) for share in (0.45, 0.75, 1.0)]
        _turns(run, workers, pairs, _QUIET, ends_s[0])
        core = min(os.sched_getaffinity(0)) if not problem else None
        with Neighbour(core):
            _turns(run, workers, pairs, _NEIGHBOUR, ends_s[1])
        try:
            with Quota(cores / 2, [worker.pid for worker in workers]) as quota:
                _turns(run, workers, pairs, _QUOTA, ends_s[2])
                throttled, periods = quota.throttled()
                run.write("quota", cores=cores / 2, throttled=throttled, periods=periods)
        except QuotaError as error:
            run.write("gap", what="under a CPU quota", why=str(error))


def _arguments(pair: tuple[str, int, int]) -> dict[str, Any]:
    return dict(zip(("variant", "threads", "base_threads"), pair, strict=True))


def _turns(
    run: Recorder,
    workers: Sequence[Worker],
    pairs: Sequence[tuple[str, int, int]],
    condition: str,
    until_left_s: float,
) -> None:
    """Blocks of every pair in every process, in LEAST_WORKERS at least, until so many seconds are left."""
    rng = np.random.default_rng((run.seed, len(condition)))
    for number in range(MOST_ROUNDS):
        for turn, position in enumerate(rng.permutation(len(workers))):
            if (number or turn >= LEAST_WORKERS) and run.left_s < until_left_s:
                return
            worker = workers[position]
            for index in rng.permutation(len(pairs)):
                pair = pairs[index]
                block = worker.call("block", **_arguments(pair), seed=int(rng.integers(1 << 31)))
                run.write("block", condition=condition, worker=worker.number, block=block, **_arguments(pair))
            run.tell(f"{condition}, round {number + 1}")


@contextlib.contextmanager
def _workers(seed: int) -> Iterator[list[Worker]]:
    workers: list[Worker] = []
    try:
        for number in range(WORKERS):
            workers.append(Worker(number))
            options = {"seed": seed + number}
            subject = "flashperf.scenarios.pinning:PinningSubject"
            workers[-1].send("start", subject=subject, options=options, standard={}, flash={})
        for worker in workers:
            worker.receive()
        yield workers
    finally:
        for worker in workers:
            worker.stop()


def analyse(lines: Sequence[Line]) -> Findings:
    """Tables of policies and of thread counts, per condition; the total is the pinned partition's."""
    plan = next((line for line in lines if line["kind"] == "plan"), {"cores": 1})
    blocks = blocks_by(lines, "condition", "variant", "threads", "base_threads")
    rows: dict[str, list[tuple[Cell, ...]]] = {"policy": [], "threads": []}
    totals: list[Total] = []
    for (condition, variant, threads, base), own in sorted(blocks.items(), key=lambda item: _place(item[0])):
        if len(own) < 2:
            continue
        found = compared(own)
        slow = percentile_s(own, "B", 90) / percentile_s(own, "B", 50)
        label = f"{variant}" if threads == base else f"{threads} thread{'s' * (threads > 1)}"
        rows["policy" if threads == base else "threads"].append(
            (
                condition,
                label,
                Quantity(side_times(own, "B"), "s"),
                Quantity(found.ratio, "ratio"),
                f"{slow:.2f}",
                found.verdict,
            )
        )
        if variant == "pinned_partition":
            what = f"pinned partition / work queue, {condition}"
            totals.append(Total(what, found.ratio, found.verdict))
    titles = ("condition", "variant", "time", "/ queue", "p90/p50", "")
    threads_then = max(2, plan["cores"])
    note = f"Rows of unequal length, the longest first, {threads_then} threads; / queue: over the work queue's time."
    tables = [
        Table("Who does which rows", titles, tuple(rows["policy"]), note),
        Table(
            "How many threads",
            titles,
            tuple(rows["threads"]),
            f"Of the work queue on {cores_text(plan['cores'])}; / queue: over its own with {threads_then} threads.",
        ),
    ]
    return Findings(tuple(totals), tuple(t for t in tables if t.rows), _sentences(lines), _gaps(lines))


def _place(key: tuple[str, str, int, int]) -> tuple[int, str, int]:
    condition, variant, threads, _ = key
    order = (_QUIET, _NEIGHBOUR, _QUOTA)
    return order.index(condition) if condition in order else len(order), variant, threads


def _sentences(lines: Sequence[Line]) -> tuple[str, ...]:
    return tuple(
        f"Under the quota of {cores_text(line['cores'])} the processes were throttled in {line['throttled']} of "
        f"{line['periods']} periods."
        for line in lines
        if line["kind"] == "quota"
    )


def _gaps(lines: Sequence[Line]) -> tuple[str, ...]:
    return tuple(f"{line['what']}: {line['why']}" for line in lines if line["kind"] == "gap")


SCENARIO = Scenario(
    name="pinning",
    question="Who does which rows of ragged work, on which cores, with how many threads, and beside whom?",
    claims=("B11",),
    measure=measure,
    analyse=analyse,
    budget_s=100.0,
)
