"""Worker processes that run the benches of one pytest session, taking turns; each visit stands between canaries."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flashperf.errors import EXIT_FAILED, UserError
from flashperf.gate.canaries import Canary, CanaryTimer
from flashperf.gate.side import Side
from flashperf.measure import limited_threads, measure_pair
from flashperf.records import Measurement
from flashperf.registry import why_not
from flashperf.stats import MIN_PROCESSES
from flashperf.store import from_json, to_json
from flashperf.workers import Worker, WorkerError

LEAST_VISIT_S = 0.02
OVERRUN, ENOUGH_OVERRUN = 1.5, 3.0
START_TIMEOUT_S = 120.0


class Visitor(Side):
    """The worker's side."""

    def visit(
        self, name: str, standard: str, budget_s: float, seed: int, cache: str, canary: str
    ) -> dict[str, Any]:
        """Canary, blocks of the bench against its standard, canary; the benches' own times in seconds."""
        mechanism, case = self.benches[name]
        base = case if standard == case.variant else case.with_variant(standard)
        if why_not(mechanism, base):
            base = case
        timer = CanaryTimer(Canary.parse(canary))
        with limited_threads(1):
            before_s = timer.run()
            rng = np.random.default_rng(seed)
            a, b, log_ratios = measure_pair(mechanism, base, case, budget_s, rng, cache=cache)
            after_s = timer.run()
        return to_json(
            {"standard": a, "measured": b, "log_ratios": log_ratios, "canary_s": before_s + after_s}
        )


@dataclass(frozen=True)
class Visit:
    """What one process measured of one bench."""

    standard: Measurement
    measured: Measurement
    log_ratios: tuple[float, ...]
    canary_s: tuple[float, ...]


class BenchPool:
    """``count`` workers that each hold all benches of the files, paths relative to ``root``."""

    def __init__(self, count: int, files: Sequence[str], root: str) -> None:
        began = time.monotonic()
        self._options = {"collect": list(files), "root": root}
        self._workers: list[Worker] = []
        try:
            self._workers = [self._start(number) for number in range(count)]
            for worker in self._workers:
                worker.receive(START_TIMEOUT_S)
            self.ready = set(self._workers[0].call("names")["ready"])
        except BaseException:
            self.close()
            raise
        self.start_s = time.monotonic() - began

    def _start(self, number: int) -> Worker:
        path = os.pathsep.join(filter(None, [*sys.path, os.environ.get("PYTHONPATH")]))
        worker = Worker(number, {"PYTHONPATH": path})
        worker.send(
            "start", subject="flashperf.benching.pool:Visitor", options=self._options, standard={}, flash={}
        )
        return worker

    def measure(
        self, name: str, standard: str, budget_s: float, seed: int, cache: str, canary: str
    ) -> list[Visit]:
        """A visit by each worker, in random order, within ``budget_s`` seconds together.

        A bench whose inputs and checks alone take longer than that is visited by fewer: the suite's budget
        stands, and what can't be judged for it says so. Raises UserError for a wrong result, as the worker
        does, and for a worker that died: it is replaced.
        """
        rng = np.random.default_rng(seed)
        deadline = time.monotonic() + budget_s
        visits: list[Visit] = []
        count = len(self._workers)
        began = time.monotonic()
        for place, number in enumerate(rng.permutation(count)):
            if visits and place >= affordable(budget_s, (time.monotonic() - began) / place, count):
                break
            left_s = (deadline - time.monotonic()) / (count - place)
            arguments: dict[str, Any] = {
                "name": name,
                "standard": standard,
                "budget_s": max(LEAST_VISIT_S, left_s),
                "seed": int(rng.integers(1 << 31)),
                "cache": cache,
                "canary": canary,
            }
            try:
                visits.append(from_json(Visit, self._workers[int(number)].call("visit", **arguments)))
            except WorkerError as error:
                self._replace(int(number))
                raise UserError(str(error), EXIT_FAILED) from error
        return visits

    def _replace(self, number: int) -> None:
        self._workers[number].stop()
        self._workers[number] = self._start(number)
        self._workers[number].receive(START_TIMEOUT_S)

    def close(self) -> None:
        """End every worker."""
        for worker in self._workers:
            worker.stop()


def affordable(budget_s: float, visit_s: float, count: int) -> int:
    """Visits of ``visit_s`` seconds that a bench gets: all ``count``, at least 6 if that takes no more than
    ENOUGH_OVERRUN times its budget, else what fits into OVERRUN times the budget, and never under 2.
    """
    fitting = int(OVERRUN * budget_s / visit_s) if visit_s > 0 else count
    if fitting < MIN_PROCESSES <= ENOUGH_OVERRUN * budget_s / visit_s:
        fitting = MIN_PROCESSES
    return min(count, max(2, fitting))
