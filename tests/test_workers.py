"""Worker processes: the protocol, what happens when one dies, and factories from a user's file."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from flashperf.disturbance import Disturbance
from flashperf.errors import UserError
from flashperf.explain.factory import load_factory, target_of
from flashperf.worker import WorkerProcess, was_stolen_from
from flashperf.workers import Worker, WorkerError, WorkerPool

FACTORY = """
import os, sys, time
print("a module that prints when it is loaded")

def factory(size, mode="a"):
    if size == "broken":
        raise RuntimeError("no such size")
    if size == "data":
        return 7
    def run():
        print("a callable that prints")
        if mode == "dies":
            os.abort()
        return sum(range(1000 if size == "small" else 20000))
    return run
"""
STANDARD, FLASH = {"size": "small"}, {"size": "large"}
SUBJECT = "flashperf.explain.factory:FactorySubject"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(FACTORY)
    return path


@pytest.fixture
def pool(file: Path) -> Iterator[WorkerPool]:
    with WorkerPool(
        1, SUBJECT, {"target": f"{file}:factory", "standard": STANDARD}, STANDARD, FLASH
    ) as started:
        yield started


def test_a_group_is_timed_in_order_and_prints_do_not_break_the_protocol(pool: WorkerPool) -> None:
    answer = pool.workers[0].ask("group", masks=[0, 1, 1, 0], lead_in=True)
    seconds = [run["seconds"] for run in answer["runs"]]
    assert len(seconds) == 4
    assert min(seconds[1], seconds[2]) > min(seconds[0], seconds[3])
    assert all(run["cpu_s"] >= 0 for run in answer["runs"])


def test_a_worker_that_is_killed_is_named_with_its_signal(pool: WorkerPool) -> None:
    worker = pool.workers[0]
    pid = worker._process.pid
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(WorkerError, match="worker 0 was ended by signal 9: it said nothing"):
        worker.ask("group", masks=[0], lead_in=False)


def test_an_abort_inside_a_callable_is_reported_not_hung(file: Path) -> None:
    with (
        WorkerPool(
            1,
            SUBJECT,
            {"target": f"{file}:factory", "standard": STANDARD},
            STANDARD,
            {**FLASH, "mode": "dies"},
        ) as started,
        pytest.raises(WorkerError, match=f"signal {signal.SIGABRT.value}"),
    ):
        started.workers[0].ask("group", masks=[3], lead_in=False)


def test_no_process_is_left_when_the_pool_closes(file: Path) -> None:
    with WorkerPool(
        2, SUBJECT, {"target": f"{file}:factory", "standard": STANDARD}, STANDARD, FLASH
    ) as started:
        processes = [worker._process for worker in started.workers]
    assert all(process.poll() is not None for process in processes)


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ("broken", "the factory failed for size=broken: RuntimeError: no such size"),
        ("data", "returned a int"),
    ],
)
def test_a_factory_that_fails_is_a_user_error(file: Path, size: str, message: str) -> None:
    options = {"target": f"{file}:factory", "standard": STANDARD}
    with (
        WorkerPool(1, SUBJECT, options, STANDARD, {"size": size}) as started,
        pytest.raises(UserError, match=message),
    ):
        started.workers[0].ask("group", masks=[1], lead_in=False)


def test_workers_that_had_started_end_if_a_later_one_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Worker] = []

    class Limited(Worker):
        def __init__(self, number: int, environment: Mapping[str, str] | None = None) -> None:
            if number == 2:
                raise UserError("can't start worker process 2")
            super().__init__(number, environment)
            started.append(self)

    monkeypatch.setattr("flashperf.workers.Worker", Limited)
    with pytest.raises(UserError, match="worker process 2"):
        WorkerPool(4, SUBJECT, {}, STANDARD, FLASH)
    assert len(started) == 2
    assert all(worker._process.poll() is not None for worker in started)


def test_a_process_that_cannot_be_started_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **named: Any) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("subprocess.Popen", refuse)
    with pytest.raises(UserError, match=r"can't start worker process 3: .*temporarily unavailable"):
        Worker(3)


def test_an_answer_that_does_not_come_is_an_error_with_the_limit() -> None:
    worker = Worker(4)
    try:
        with pytest.raises(WorkerError, match="worker 4 gave no answer within 0 s"):
            worker.receive(timeout_s=0.05)
    finally:
        worker.stop()


def test_commands_before_start_are_refused() -> None:
    worker = Worker(0)
    try:
        with pytest.raises(WorkerError, match="first command must be start"):
            worker.ask("group", masks=[0], lead_in=False)
    finally:
        worker.stop()


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("nothing", "does not name a factory"),
        ("no_such_module_here:factory", "can't import no_such_module_here"),
        ("missing.py:factory", "there is no file missing.py"),
        ("flashperf.records:nothing", "has no 'nothing'"),
        ("flashperf.records:SCHEMA_VERSION", "is a int, not a function"),
    ],
)
def test_factories_that_cannot_be_found(target: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_factory(target)


def top_level(**levels: str) -> None: ...


def test_a_function_is_found_again_by_its_file_and_local_ones_are_refused() -> None:
    assert load_factory(target_of(top_level)).__name__ == "top_level"
    with pytest.raises(UserError, match="top level of a file"):
        target_of(lambda: None)


class CountingSubject:
    """Every second run is stolen from, until ``calm`` runs have passed."""

    def __init__(self, calm_after: int) -> None:
        self.runs, self.calm_after = 0, calm_after

    def rebuild(self, seed: int) -> None: ...
    def prepare(self, levels: dict[str, str]) -> None: ...

    def run(self, levels: dict[str, str]) -> dict[str, float]:
        self.runs += 1
        return {"seconds": 1.0}


class ScriptedProbe:
    def __init__(self, subject: CountingSubject) -> None:
        self.subject = subject

    def read(self) -> Disturbance:
        return Disturbance(involuntary=9 * min(self.subject.runs, self.subject.calm_after))


@pytest.mark.parametrize(("calm_after", "repeats", "stolen"), [(0, 0, 0), (3, 2, 0), (2, 1, 0), (99, 2, 2)])
def test_a_stolen_group_is_repeated_whole_and_counted(calm_after: int, repeats: int, stolen: int) -> None:
    subject = CountingSubject(calm_after)
    process = WorkerProcess(subject, (STANDARD, FLASH))
    process._probe = ScriptedProbe(subject)  # type: ignore[assignment]
    answer = process.group([0, 1], lead_in=False)
    assert (answer["repeats"], answer["stolen"]) == (repeats, stolen)
    assert subject.runs == 2 * (1 + repeats)


def test_evidence_of_theft_is_switches_steal_or_throttling() -> None:
    assert not was_stolen_from(Disturbance(involuntary=2))
    assert was_stolen_from(Disturbance(involuntary=3))
    assert was_stolen_from(Disturbance(steal_ticks=1))
    assert was_stolen_from(Disturbance(throttled=1))


def test_repeats_are_rationed_where_every_call_is_stolen_from() -> None:
    subject = CountingSubject(calm_after=10**6)
    process = WorkerProcess(subject, (STANDARD, FLASH))
    process._probe = ScriptedProbe(subject)  # type: ignore[assignment]
    repeats = sum(process.group([0, 1], lead_in=False)["repeats"] for _ in range(100))
    assert 20 <= repeats <= 2 + 25
