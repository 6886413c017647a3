"""Cases on workers that answer from a script: no process is started and no clock is read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from flashperf.cases import analysis, run
from flashperf.cases.definition import OpenCase
from flashperf.cases.guards import Machine
from flashperf.cases.registry import case_named
from flashperf.deadline import Deadline
from flashperf.progress import NullProgress
from flashperf.store import RecordWriter
from flashperf.workers import SubjectError, WorkerError

MACHINE = Machine(torch="2.13.0", isa=frozenset({"avx2"}), cores=2, compiler=True, cuda=False)


class ScriptedWorker:
    """Answers as a worker would: the optimised side takes ``ratio`` times as long.

    fails: methods that break the worker, or ``method path`` where only what it was asked to do fails.
    """

    def __init__(
        self, number: int, ratio: float = 2.0, fails: tuple[str, ...] = (), clock: Any = None
    ) -> None:
        self.number, self.ratio, self.fails, self.clock, self.stopped = number, ratio, fails, clock, False
        self._sent: list[tuple[str, dict[str, Any]]] = []

    def send(self, command: str, method: str, arguments: dict[str, Any]) -> None:
        self._sent.append((method, arguments))

    def receive(self, timeout_s: float = 0.0) -> Any:
        method, arguments = self._sent.pop(0)
        return self.call(method, **arguments)

    def call(self, method: str, timeout_s: float = 0.0, **arguments: Any) -> Any:
        if method in self.fails:
            raise WorkerError(f"worker {self.number} failed: {method} did not run")
        if f"{method} {arguments.get('path')}" in self.fails:
            raise SubjectError(f"worker {self.number} failed: WrongPathError: {arguments['path']} is\nwrong")
        if self.clock is not None:
            self.clock.now += 1.0
        return getattr(self, f"_{method}")(**arguments)

    def stop(self) -> None:
        self.stopped = True

    def _prepare(self, **_: Any) -> dict[str, Any]:
        work = {"work": 1.0, "useful": 1.0}, {"work": self.ratio, "useful": 1.0}
        return {"sides": [{"facts": facts, "first_s": 1e-3, "parts_s": {}} for facts in work]}

    def _dispatch_prices(self) -> dict[str, float]:
        return {"called_s": 1e-6, "nested_s": 2e-7}

    def _block(self, seed: int, **_: Any) -> dict[str, Any]:
        order = "ABBABAAB"
        tilt = 1 + 0.001 * self.number
        wall = [1e-3 * (self.ratio * tilt if side == "B" else 1.0) for side in order]
        return {"order": order, "wall_s": wall, "cpu_s": wall, "repeated": 0, "kept": 0}

    def _fresh(self, path: str, **_: Any) -> dict[str, Any]:
        slow = 5.0 if path == "compiled" else 1e-3
        times = [slow, *[1e-3 * (1 + 0.01 * self.number)] * 9]
        story = {
            "times_s": times,
            "steady_s": 1e-3,
            "compilations": int(path == "compiled"),
            "worst_error": 0.0,
        }
        return {"story": story, "seconds": sum(times)}


class Clock:
    """Monotonic seconds that move when told."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def measured(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    cases: Sequence[str | OpenCase],
    budget_s: float = 1e9,
    machine: Machine = MACHINE,
    failing: dict[str, tuple[str, ...]] | None = None,
    slow_clock: bool = False,
) -> tuple[analysis.CasesReport, list[ScriptedWorker]]:
    """Run cases on scripted workers and read the record."""
    clock, started = Clock(), list[ScriptedWorker]()

    def start(case: OpenCase, count: int, seed: int) -> list[ScriptedWorker]:
        fails = (failing or {}).get(case.id, ())
        new = [
            ScriptedWorker(n + seed, fails=fails, clock=clock if slow_clock else None) for n in range(count)
        ]
        started.extend(new)
        return new

    monkeypatch.setattr(run, "start_workers", start)
    path = folder / "record.jsonl"
    with RecordWriter(path) as writer:
        session = run.CasesRun(writer, Deadline(budget_s, 0.0, clock), NullProgress(), 0, machine)
        session.measure([case if isinstance(case, OpenCase) else case_named(case) for case in cases])
    return analysis.read_report(path), started
