"""Ranks that fail, die or hang end the run with a message, and leave nobody behind."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from flashperf.scenarios import ranks
from flashperf.scenarios.ranks import run_ranks
from flashperf.workers import WorkerError

HERE = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])}


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """Every process that is started."""
    found: list[subprocess.Popen[bytes]] = []

    class Remembered(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            found.append(self)

    monkeypatch.setattr(ranks.subprocess, "Popen", Remembered)
    return found


def test_rank_zero_answers_in_json_lines() -> None:
    assert run_ranks("rank_programs", 2, {}, 60.0, HERE) == [{"kind": "times", "world": "2"}]


@pytest.mark.parametrize(
    "does, says",
    [
        ("fails", "rank 1 of 2 ended with code 1: the weights do not fit"),
        ("dies", "rank 1 of 2 was ended by signal 9: it said nothing"),
    ],
)
def test_a_rank_that_fails_or_dies_ends_all(
    does: str, says: str, started: list[subprocess.Popen[bytes]]
) -> None:
    with pytest.raises(WorkerError) as raised:
        run_ranks("rank_programs", 2, {"does": does}, 60.0, HERE)
    assert str(raised.value) == says
    assert [process.poll() is None for process in started] == [False, False]


def test_ranks_that_hang_are_ended_when_time_is_up(
    monkeypatch: pytest.MonkeyPatch, started: list[subprocess.Popen[bytes]]
) -> None:
    clock = iter([0.0, *[1e6] * 100])
    monkeypatch.setattr(ranks.time, "monotonic", lambda: next(clock))
    with pytest.raises(WorkerError, match="no answer from rank 0, 1 within 60 s; all ranks were ended"):
        run_ranks("rank_programs", 2, {"does": "hangs"}, 60.0, HERE)
    assert all(process.poll() is not None for process in started)


@pytest.mark.slow
def test_a_rank_killed_between_collectives_ends_the_scenario(started: list[subprocess.Popen[bytes]]) -> None:
    pytest.importorskip("torch", reason="the ranks meet through torch.distributed")
    import threading

    def kill_the_second() -> None:
        deadline = time.monotonic() + 60
        while len(started) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        started[1].kill()

    killer = threading.Thread(target=kill_the_second)
    killer.start()
    with pytest.raises(WorkerError, match=r"rank 1 of 2 was ended by signal 9|rank 0 of 2 ended"):
        run_ranks("flashperf.scenarios.parallel_worker", 2, {"lengths": [64], "rounds": 1}, 120.0)
    killer.join()
    assert all(process.poll() is not None for process in started)


@pytest.mark.slow
def test_all_strategies_give_the_result_of_one_rank() -> None:
    pytest.importorskip("torch", reason="the ranks meet through torch.distributed")
    lines = run_ranks("flashperf.scenarios.parallel_worker", 2, {"lengths": [64], "rounds": 1}, 120.0)
    checked = {line["strategy"]: line["error"] for line in lines if line["kind"] == "checked"}
    assert set(checked) == {"data", "tensor", "sequence"}
    assert max(checked.values()) < 1e-5
    times = [line for line in lines if line["kind"] == "times"]
    assert len(times) == 3
    assert all(
        0 < line["split_talking_s"] <= line["split_s"] and line["alone_talking_s"] == 0 for line in times
    )
