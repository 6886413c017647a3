"""``flashperf.compare``: verdicts in processes and alone, scripts and sessions. Directions only, no times."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pair_cases import X, quick, softmax, softmax_thrice

import flashperf
from flashperf import compare as compare_module
from flashperf.compare import ONE_PROCESS_FACTOR, CompareResult, one_process_comparison
from flashperf.comparing.pair import PairSpec
from flashperf.comparing.pair_run import run_here
from flashperf.comparing.text import disturbances
from flashperf.problem import WrongResult
from flashperf.roofline import Roof
from flashperf.timers import ScriptedClock
from flashperf.workers import Worker

pytestmark = pytest.mark.slow  # starts eight processes many times


def test_the_module_is_called_like_its_function() -> None:
    assert flashperf.compare is compare_module
    assert "inputs" in inspect.signature(flashperf.compare).parameters
    result = flashperf.compare(softmax, softmax, inputs=X, budget_s=0.01, processes=1)
    assert isinstance(result, CompareResult)


def test_three_times_the_work_is_slower_in_every_process() -> None:
    result = flashperf.compare(softmax, softmax_thrice, inputs=[X], budget_s=0.6, processes=6)
    assert result.verdict == "slower"
    assert result.comparison.ratio.low > 1.5
    assert result.comparison.processes == 6
    assert len(result.blocks) == 6
    assert all(result.blocks)
    assert result.error <= result.checks[1].limit
    assert result.notes == ()
    assert result.start_s > 0
    assert "softmax_thrice is slower than softmax" in str(result)
    assert "6 processes" in repr(result)
    back = flashperf.compare(softmax_thrice, softmax, inputs=[X], budget_s=0.6, processes=6)
    assert back.verdict == "faster"


def test_lambdas_and_closures_are_measured_in_processes_too() -> None:
    weight = X.T.copy()
    result = flashperf.compare(
        lambda x: x @ weight,
        lambda x: x @ weight + 0 * (x @ weight),
        inputs={"x": X},
        budget_s=0.2,
        processes=2,
    )
    assert result.comparison.processes == 2
    assert "at least 6 are advised" in result.comparison.reason or result.verdict == "unresolved"
    assert result.names == ("a", "b")


def test_inputs_made_from_a_seed_differ_by_process() -> None:
    def make(seed: int) -> dict[str, np.ndarray]:
        return {"x": np.random.default_rng(seed).standard_normal((32, 32)).astype(np.float32)}

    result = flashperf.compare(softmax, softmax_thrice, inputs=make, budget_s=0.1, processes=2)
    assert result.comparison.processes == 2
    with pytest.raises(WrongResult):  # of the second process: its seed is 1
        flashperf.compare(
            lambda x: x * 2,
            lambda x: x * 2 + (x == 1),
            inputs=lambda seed: np.full(3, float(seed)),
            processes=2,
        )


def test_what_can_not_be_sent_is_measured_alone_and_said() -> None:
    lock = threading.Lock()

    def locked(x: np.ndarray) -> np.ndarray:
        with lock:
            return softmax(x)

    result = flashperf.compare(softmax, locked, inputs=X, budget_s=0.05)
    assert result.comparison.processes == 1
    assert "measured in this process only" in result.notes[0]
    assert "_thread.lock" in result.notes[0]
    assert f"widened by a factor of {ONE_PROCESS_FACTOR}" in str(result)


def test_one_process_gives_a_verdict_only_far_from_one() -> None:
    blocks = np.log([1.2, 1.2001, 1.1999, 1.2])
    near = one_process_comparison(blocks, 0.05)
    assert near.verdict == "unresolved"  # the same blocks of several processes would be clear
    assert near.ratio.low == pytest.approx(1.2 / ONE_PROCESS_FACTOR, rel=1e-3)
    assert near.ratio.high == pytest.approx(1.2 * ONE_PROCESS_FACTOR, rel=1e-3)
    assert one_process_comparison(np.log([2.0, 2.1, 1.9, 2.0]), 0.05).verdict == "slower"
    assert one_process_comparison(np.log([0.5, 0.52, 0.48, 0.5]), 0.05).verdict == "faster"
    assert one_process_comparison([0.0, 0.0, 0.0], 0.05).verdict == "unresolved"  # never "equivalent"
    assert "single process" in near.reason


def test_a_scripted_clock_gives_the_exact_ratio() -> None:
    clock = ScriptedClock()

    def taking(seconds: float) -> Callable[[np.ndarray], np.ndarray]:
        def call(x: np.ndarray) -> np.ndarray:
            clock.advance(seconds)
            return softmax(x)

        return call

    run = run_here(PairSpec(taking(0.01), taking(0.02), (X,)), 0.5, None, 0, clock)
    assert [block.log_ratio for block in run.blocks[0]] == pytest.approx([np.log(2)] * len(run.blocks[0]))
    assert run.prepared.first_call_s == pytest.approx((0.01, 0.02))
    assert run.prepared.calls_per_sample == (1, 1)
    assert run.prepared.reference == "a in float64"


def test_costs_give_rates_and_a_place_under_the_roof() -> None:
    roof = Roof("toy", 1e15, 1e15, "given")
    result = quick(softmax, softmax_thrice, X, flops=5 * X.size, bytes=(8 * X.size, 24 * X.size), roof=roof)
    assert result.placements is not None
    a, b = result.placements
    assert a.flops_per_s == pytest.approx(5 * X.size / result.time_s[0].value)
    assert b.bytes_per_s == pytest.approx(24 * X.size / result.time_s[1].value)
    assert result.placement == b
    assert (b.bound, b.roof) == ("memory", "toy")
    assert "GB/s" in str(result) or "MB/s" in str(result)
    assert quick(softmax, softmax, X).placement is None


SCRIPT = """
import numpy as np
import flashperf

def plain(x):
    return np.exp(x) / np.exp(x).sum()

print("top", flush=True)
print(flashperf.compare(plain, lambda x: np.exp(x) / np.exp(x).sum(), inputs=np.ones(8), budget_s=0.1))
"""


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def test_a_plain_script_works_and_runs_once(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("top") == 1
    assert "8 processes" in done.stdout
    assert "reference: plain in float64" in done.stdout


def test_an_interactive_session_works(tmp_path: Path) -> None:
    typed = SCRIPT.replace("print(flashperf.compare", "\nprint(flashperf.compare")
    done = subprocess.run(
        [sys.executable, "-i"], input=typed, cwd=tmp_path, env=environment(), capture_output=True, text=True,
        timeout=120,
    )  # fmt: skip
    assert "8 processes" in done.stdout, done.stderr
    assert "Traceback" not in done.stderr


def test_disturbed_samples_never_read_as_more_than_there_are() -> None:
    assert disturbances(218, 60, 456) == (
        "456 samples, 60 of them disturbed by the machine but kept; "
        "218 more pairs were disturbed, left out and run again"
    )
    assert disturbances(0, 0, 8) == "8 samples, none of them disturbed by the machine"


def test_large_arrays_are_checked_by_two_processes_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    known: list[bool] = []
    call = Worker.call

    def watched(self: Worker, method: str, timeout_s: float = 300.0, **arguments: Any) -> Any:
        if method == "prepare_pair":
            known.append(arguments["known"] is not None)
        return call(self, method, timeout_s, **arguments)

    monkeypatch.setattr(Worker, "call", watched)
    large = np.ones(3_000_000, np.float32)
    result = flashperf.compare(lambda x: x * 2, lambda x: x + x, large, budget_s=0.05, processes=4)
    assert known == [False, False, True, True]
    assert result.comparison.processes == 4
    assert result.error == 0
    known.clear()
    flashperf.compare(softmax, softmax, X, budget_s=0.05, processes=3)
    assert known == [False] * 3
