"""Measuring cases: workers that take turns, a block each, case after case, inside a budget; all of it recorded."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from flashperf import environment
from flashperf.cases.definition import OpenCase
from flashperf.cases.guards import GuardError, Machine, first_reason, this_machine
from flashperf.deadline import Deadline
from flashperf.errors import UserError
from flashperf.progress import ProgressSink
from flashperf.store import RecordWriter
from flashperf.workers import SubjectError, Worker, WorkerError

WORKERS = 6  # the least that an interval should rest on; starting torch in each takes some of the time
LEAST_PROCESSES = 4
FRESH_PROCESSES = 4
MOST_ROUNDS = 5
_PREPARE_LIMIT_S = 180.0
_FRESH_LIMIT_S = 120.0
_SUBJECT = "flashperf.cases.subject:CaseSubject"


class CasesRun:
    """One run over cases. ``stopped`` says why it ended: "done", "budget", "interrupted"."""

    def __init__(
        self,
        writer: RecordWriter,
        deadline: Deadline,
        progress: ProgressSink,
        seed: int,
        machine: Machine | None = None,
    ) -> None:
        self.writer, self.deadline, self.progress, self.seed = writer, deadline, progress, seed
        self.machine = machine or this_machine()
        self.stopped = "done"
        self._share_ends_s = 0.0

    def measure(self, cases: Sequence[OpenCase]) -> None:
        """Measure what can be; failures of single cases are recorded and the next one follows."""
        files = {case.id: _as_named_here(case.file) for case in cases if case.file}
        self.writer.write(
            "cases",
            ids=[case.id for case in cases],
            files=files,
            seed=self.seed,
            budget_s=self.deadline.budget_s,
        )
        self.writer.write("environment", environment=environment.capture())
        self.writer.write("machine", machine=self.machine)
        # Those in processes of their own last: what compilers take can't be told beforehand, nor cut short.
        runnable = sorted((case for case in cases if self._can_run(case)), key=lambda case: case.fresh)
        try:
            for number, case in enumerate(runnable):
                share_s = self.deadline.left_s / (len(runnable) - number)
                self._share_ends_s = self.deadline.elapsed_s + share_s
                self.progress.phase(f"case {case.id}", case.name)
                if self.deadline.left_s <= 0:
                    self.stopped = "budget"
                    break
                self._case(case)
        except KeyboardInterrupt:
            self.stopped = "interrupted"
        self.writer.write("end", stopped=self.stopped, seconds=self.deadline.elapsed_s)

    def _can_run(self, case: OpenCase) -> bool:
        """Whether nothing that it requires is missing; the reason is recorded."""
        try:
            why = first_reason(case.requires, self.machine)
            first_reason(case.expectation.where, self.machine)  # a wrong one is better found before measuring
        except GuardError as error:
            self._failed(case, str(error))
            return False
        if why:
            self.writer.write("skipped", case=case.id, why=why)
        return not why

    def _failed(self, case: OpenCase, why: str, **where: Any) -> None:
        """Record what broke, in one line and without what the record says anyway: who, and that it failed."""
        line = re.sub(r"^worker \d+ failed: (WrongPathError: )?", "", " ".join(why.split()))
        line = re.sub(
            r": USDT:.*", "", line
        )  # the profiler's log is the last thing that a killed worker said
        self.writer.write("failure", case=case.id, why=line, **where)

    def _case(self, case: OpenCase) -> None:
        """In processes of its own: what another case left behind, if only a grown heap, changes times by half."""
        workers: list[Worker] = []
        try:
            if case.fresh:
                self._fresh(case)
            else:
                workers = start_workers(case, WORKERS, self.seed)
                self._blocks(case, workers)
        except (WorkerError, UserError) as error:
            self._failed(case, str(error))
        finally:
            for worker in workers:
                worker.stop()

    def _blocks(self, case: OpenCase, workers: Sequence[Worker]) -> None:
        pairs = []
        for n, (point, path) in enumerate(case.pairs()):
            if self.deadline.left_s <= 0:
                self.stopped = "budget"
                return
            if self._prepare(case, workers, point, path):
                pairs.append((point, path))
            elif (point, path) == (case.headline, case.optimised):
                return  # the diagnosis is of this pair
            self._tell(f"prepared {n + 1} of {len(case.pairs())}")
        for worker in workers if case.uses_torch else ():
            self.writer.write(
                "dispatch", case=case.id, worker=worker.number, **worker.call("dispatch_prices")
            )
        self._turns(case, workers, pairs)

    def _turns(self, case: OpenCase, workers: Sequence[Worker], pairs: Sequence[tuple[int, str]]) -> None:
        """A block of every pair from each process in turn, for as many rounds as there is time."""
        rng = np.random.default_rng((self.seed, len(case.points)))
        for turn, worker in enumerate(
            w for _ in range(MOST_ROUNDS) for w in rng.permutation(np.array(workers))
        ):
            # With fewer processes than that a case is hardly worth measuring, so it may overdraw its share.
            if turn >= LEAST_PROCESSES and self.deadline.elapsed_s > self._share_ends_s:
                return
            for index in rng.permutation(len(pairs)):
                if self.deadline.left_s <= 0:
                    self.stopped = "budget"
                    return
                point, path = pairs[index]
                where = {"case": case.id, "point": point, "path": path, "worker": worker.number}
                seed = int(rng.integers(1 << 31))
                block = worker.call("block", case_id=case.reference, point=point, path=path, seed=seed)
                self.writer.write("block", **where, block=block)
            self._tell(
                f"process {turn % len(workers) + 1} of {len(workers)}, round {turn // len(workers) + 1}"
            )

    def _prepare(self, case: OpenCase, workers: Sequence[Worker], point: int, path: str) -> bool:
        """On as many workers at once as there are cores: nothing here is compared, but compilers are slow.

        Returns whether all could; a pair that is wrong or does not run is recorded, and the other pairs go on.
        """
        together = max(1, self.machine.cores)
        for start in range(0, len(workers), together):
            batch = workers[start : start + together]
            for worker in batch:
                # Two processes compare the results: each side comes first in one of them.
                arguments = {
                    "case_id": case.reference,
                    "point": point,
                    "path": path,
                    "check": worker.number < 2,
                }
                worker.send("call", method="prepare", arguments=arguments)
            wrong = ""
            for worker in batch:  # every answer is taken, or the next question would get it
                try:
                    answer = worker.receive(_PREPARE_LIMIT_S)
                except (SubjectError, UserError) as error:
                    wrong = str(error)
                    continue
                self.writer.write(
                    "prepared", case=case.id, point=point, path=path, worker=worker.number, **answer
                )
            if wrong:
                self._failed(case, wrong, point=point, path=path)
                return False
        return True

    def _fresh(self, case: OpenCase) -> None:
        """Every path in fresh processes, one at a time, in random order."""
        paths = [case.baseline, *dict.fromkeys(path for _, path in case.pairs())]
        rng = np.random.default_rng((self.seed, 1))
        for number in range(FRESH_PROCESSES):
            for path in rng.permutation(paths):
                enough = number >= 2 and self.deadline.elapsed_s > self._share_ends_s
                if self.deadline.left_s <= 0:
                    self.stopped = "budget"
                if enough or self.deadline.left_s <= 0:
                    return
                (worker,) = start_workers(case, 1, self.seed + number)
                try:
                    arguments = {"case_id": case.reference, "point": case.headline, "path": str(path)}
                    answer = worker.call("fresh", _FRESH_LIMIT_S, **arguments)
                finally:
                    worker.stop()
                self.writer.write(
                    "fresh", case=case.id, point=case.headline, path=str(path), worker=number, **answer
                )
                self._tell(f"process {number + 1}, {path}")

    def _tell(self, detail: str) -> None:
        done = self.deadline.elapsed_s / max(self.deadline.budget_s, 1e-9)
        self.progress.update(min(done, 1.0), max(self.deadline.left_s, 0.0), [detail])


def _as_named_here(path: str) -> str:
    """A path relative to this folder if it is below it, so that a record is read in another checkout too."""
    return os.path.relpath(path) if Path(path).is_relative_to(Path.cwd()) else path


def start_workers(case: OpenCase, count: int, seed: int) -> list[Worker]:
    """Fresh processes for a case, with its environment; none is left behind if one does not start."""
    variables: Mapping[str, str] = {"KINETO_LOG_LEVEL": "5", **case.environment}
    workers: list[Worker] = []
    try:
        for number in range(count):
            workers.append(Worker(number, variables))
            options: dict[str, Any] = {"seed": seed + number, "threads": case.threads}
            workers[-1].send("start", subject=_SUBJECT, options=options, standard={}, flash={})
        for worker in workers:
            worker.receive()
    except BaseException:
        for worker in workers:
            worker.stop()
        raise
    return workers


def run_cases(
    cases: Sequence[OpenCase],
    out: Path,
    budget_s: float,
    seed: int,
    progress: ProgressSink,
    began: float | None = None,
) -> Path:
    """Measure cases into ``out``/record.jsonl and return its path. Raises UserError for a bad budget."""
    if not 0 < budget_s < float("inf"):
        raise UserError(f"the budget must be a positive number of seconds, not {budget_s:g}")
    if seed < 0:
        raise UserError(f"the seed must not be negative, and is {seed}")
    path = out / "record.jsonl"
    with RecordWriter(path) as writer:
        CasesRun(writer, Deadline(budget_s, began), progress, seed).measure(cases)
    return Path(os.fspath(path))
