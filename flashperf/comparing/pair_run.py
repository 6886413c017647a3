"""Times a pair: in several fresh processes that take turns, or in this one."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from flashperf.blocks import Block
from flashperf.comparing.pair import Pair, PairSpec, Prepared, set_torch_threads
from flashperf.disturbance import Probe
from flashperf.environment import usable_cores
from flashperf.measure import limited_threads
from flashperf.problem import WrongResult
from flashperf.records import Check
from flashperf.store import from_json, to_json
from flashperf.timers import SYSTEM_CLOCK, Clock
from flashperf.workers import Worker

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")

#: Above this the check of one process costs about as much as starting it, and more.
LARGE_PAYLOAD_BYTES = 8 << 20
#: Two, since each side comes first in one of them.
CHECKED_PROCESSES = 2


@dataclass(frozen=True)
class PairRun:
    """What was measured: blocks by process; seconds before timing (start-up and checks) and of timing."""

    prepared: Prepared
    blocks: tuple[tuple[Block, ...], ...]
    start_s: float
    measured_s: float


def run_here(
    spec: PairSpec,
    budget_s: float,
    threads: int | None,
    seed: int,
    clock: Clock = SYSTEM_CLOCK,
    probe: Probe | None = None,
) -> PairRun:
    """Blocks of this process alone; at least two, so that there is an interval."""
    set_torch_threads(threads)
    with limited_threads(threads):
        start_ns = clock.wall_ns()
        pair = Pair(spec, seed, clock, probe)
        prepared = pair.prepare()
        ready_ns = clock.wall_ns()
        rng = np.random.default_rng(seed)
        blocks: list[Block] = []
        while len(blocks) < 2 or clock.wall_ns() - ready_ns < budget_s * 1e9:
            blocks.append(pair.block(int(rng.integers(1 << 31))))
        end_ns = clock.wall_ns()
    return PairRun(prepared, (tuple(blocks),), (ready_ns - start_ns) * 1e-9, (end_ns - ready_ns) * 1e-9)


def run_in_processes(
    payload: bytes,
    count: int,
    budget_s: float,
    threads: int | None,
    seed: int,
    same_inputs: bool = False,
) -> PairRun:
    """Each process checks the pair that ``payload`` holds; then they take turns, a block each, at least one.

    With a large payload and the ``same_inputs`` everywhere, the first CHECKED_PROCESSES check for all.
    Raises WrongResult if a side is wrong in any of them, WorkerError if one dies.
    """
    start = time.perf_counter()
    with _pair_workers(payload, count, threads, seed) as workers:
        prepared: list[Prepared] = []
        for number, worker in enumerate(workers):
            trusted = same_inputs and len(payload) > LARGE_PAYLOAD_BYTES and number >= CHECKED_PROCESSES
            reply = worker.call("prepare_pair", known=to_json(prepared[0]) if trusted else None)
            if "wrong" in reply:
                raise WrongResult(reply["who"], from_json(Check, reply["wrong"]))
            prepared.append(from_json(Prepared, reply["prepared"]))
        ready = time.perf_counter()
        rng = np.random.default_rng(seed)
        blocks: list[list[Block]] = [[] for _ in workers]
        turn = 0
        while turn < count or time.perf_counter() - ready < budget_s:
            answer = workers[turn % count].call("block", seed=int(rng.integers(1 << 31)))
            blocks[turn % count].append(from_json(Block, answer))
            turn += 1
        end = time.perf_counter()
    return PairRun(_typical(prepared), tuple(map(tuple, blocks)), ready - start, end - ready)


def worker_environment(threads: int | None) -> dict[str, str]:
    """Variables of a process that imports what this one can, with so many threads (None: all cores)."""
    variables = {name: str(threads or usable_cores()) for name in _THREAD_VARIABLES}
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, [*sys.path, os.environ.get("PYTHONPATH")]))
    return variables


@contextlib.contextmanager
def _pair_workers(payload: bytes, count: int, threads: int | None, seed: int) -> Iterator[list[Worker]]:
    """Fresh processes that hold the pair; ended on the way out, whatever happens."""
    variables = worker_environment(threads)
    workers: list[Worker] = []
    with tempfile.NamedTemporaryFile(prefix="flashperf-") as file:
        file.write(payload)
        file.flush()
        try:
            for number in range(count):
                workers.append(Worker(number, variables))
                options = {"payload": file.name, "seed": seed + number, "threads": threads}
                workers[-1].send(
                    "start",
                    subject="flashperf.comparing.pair:PairWorker",
                    options=options,
                    standard={},
                    flash={},
                )
            for worker in workers:
                worker.receive()
            yield workers
        finally:
            for worker in workers:
                worker.stop()


def _typical(prepared: list[Prepared]) -> Prepared:
    """One for all processes: the worst check of either side, the median first call."""
    checks = [max((p.checks[n] for p in prepared), key=lambda check: check.max_abs_error) for n in (0, 1)]
    first = [float(np.median([p.first_call_s[n] for p in prepared])) for n in (0, 1)]
    one = prepared[0]
    return Prepared(
        (checks[0], checks[1]), (first[0], first[1]), one.calls_per_sample, one.cache, one.reference
    )
