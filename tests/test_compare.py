"""``flashperf.compare``: NumPy and torch callables, in processes and alone. Directions only, no times."""

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

import flashperf
from flashperf import compare as compare_module
from flashperf.compare import ONE_PROCESS_FACTOR, CompareResult, one_process_comparison
from flashperf.errors import UserError
from flashperf.pair import PairSpec
from flashperf.pair_run import run_here
from flashperf.problem import CaseError, WrongResult
from flashperf.roofline import Roof
from flashperf.timers import ScriptedClock

X = np.random.default_rng(0).standard_normal((64, 96)).astype(np.float32)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def softmax_thrice(x: np.ndarray) -> np.ndarray:
    softmax(x)
    softmax(x)
    return softmax(x)


def quick(a: Callable[..., Any], b: Callable[..., Any], inputs: Any, **options: Any) -> CompareResult:
    """A short comparison in this process."""
    return flashperf.compare(a, b, inputs, **{"budget_s": 0.05, "processes": 1} | options)


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


# --- right and wrong results ---------------------------------------------------------


def test_a_wrong_result_is_not_timed() -> None:
    for processes in (1, 2):
        with pytest.raises(WrongResult, match=r"b: wrong result, not timed: result\[0, 0\].*above the limit"):
            flashperf.compare(
                lambda x: x + 1, lambda x: x * 1.001 + 1, inputs=np.ones((2, 2)), processes=processes
            )


def test_both_are_checked_against_a_given_reference() -> None:
    result = quick(softmax, softmax_thrice, X, reference=softmax)
    assert result.prepared.reference == "the given reference"
    with pytest.raises(WrongResult, match=r"^softmax: wrong result"):
        quick(softmax, softmax_thrice, X, reference=lambda x: softmax(x) + 1e-3)


def test_the_reference_gets_float64() -> None:
    seen: list[np.dtype] = []

    def watched(x: np.ndarray) -> np.ndarray:
        seen.append(x.dtype)
        return softmax(x)

    quick(softmax, softmax, X, reference=watched)
    assert seen == [np.float64]


def test_low_precision_fails_by_default_and_passes_with_a_tolerance() -> None:
    def half(x: np.ndarray) -> np.ndarray:
        return (x.astype(np.float16) @ x.astype(np.float16).T).astype(np.float32)

    with pytest.raises(WrongResult, match="rtol= and atol= allow more"):
        quick(lambda x: x @ x.T, half, X[:8])
    assert quick(lambda x: x @ x.T, half, X[:8], atol=0.1).error > 1e-4


def test_a_that_only_takes_its_own_precision_is_its_own_reference() -> None:
    def strict(x: np.ndarray) -> np.ndarray:
        if x.dtype != np.float32:
            raise TypeError("needs float32")
        return softmax(x)

    result = quick(strict, softmax, X)
    assert "in its own precision, since float64 failed: strict raised TypeError: needs float32" in str(result)


def test_out_parameters_are_named() -> None:
    def into(x: np.ndarray, out: np.ndarray) -> None:
        np.multiply(x, 2, out=out)

    def half_written(x: np.ndarray, out: np.ndarray) -> None:
        out[: len(x) // 2] = 2 * x[: len(x) // 2]

    inputs = {"x": X, "out": np.zeros_like(X)}
    assert quick(into, into, inputs, outputs=["out"]).error == 0
    assert quick(into, into, (X, np.zeros_like(X)), outputs=[1]).error == 0
    with pytest.raises(WrongResult, match=r"output out\[32, 0\]|never written|NaN"):
        quick(into, half_written, inputs, outputs=["out"])
    with pytest.raises(CaseError, match="a returns no array; inputs that a call writes are named"):
        quick(into, into, inputs)
    with pytest.raises(CaseError, match="outputs names 'owt', but the inputs are x, out"):
        quick(into, into, inputs, outputs=["owt"])


def test_results_need_storage_of_their_own() -> None:
    with pytest.raises(
        CaseError, match="returns result in the memory of its input 0: results need new storage"
    ):
        quick(lambda x: x[:2], lambda x: x[:2], X)


def test_a_result_that_is_not_written_again_is_found_and_left_as_it_was() -> None:
    kept = softmax(X)

    def stale(x: np.ndarray) -> np.ndarray:
        return kept

    with pytest.raises(WrongResult, match=r"^stale: wrong result.*NaN"):
        quick(softmax, stale, X)
    assert np.array_equal(kept, softmax(X))


def test_a_buffer_that_the_callable_keeps_and_writes_is_fine() -> None:
    buffer = np.empty_like(X)
    assert quick(lambda x: x * 2, lambda x: np.multiply(x, 2, out=buffer), X).error == 0


def test_elements_left_unwritten_in_new_storage_are_found() -> None:
    def half_written(x: np.ndarray) -> np.ndarray:
        y = np.empty_like(x)
        y[: len(x) // 2] = 2 * x[: len(x) // 2]
        return y

    with pytest.raises(WrongResult):
        quick(lambda x: x * 2, half_written, X)


def test_freed_storage_is_poisoned_before_it_can_be_used_again() -> None:
    """An allocator whose blocks happen to hold the right values would hide what is never written."""
    pool = [X * 2 for _ in range(3)]

    def unwritten(x: np.ndarray) -> np.ndarray:
        return next(block for block in pool if sys.getrefcount(block) == 3)  # free: pool, block, argument

    with pytest.raises(WrongResult, match="NaN"):
        quick(lambda x: x * 2, unwritten, X)


def test_twice_the_error_of_a_is_allowed_to_b() -> None:
    limit = 1024 * 2.0**-24 * 64  # of float32 results up to 64
    x = np.array([64.0, 1.0], np.float32)

    def off(by: float) -> Callable[[np.ndarray], np.ndarray]:
        return lambda x: x.copy() if x.dtype == np.float64 else x + np.float32(by)

    assert quick(off(0.8 * limit), off(1.5 * limit), x).error > limit
    for a, b in ((0.8, 1.7), (0.1, 1.5), (1.2, 0.1)):
        with pytest.raises(WrongResult):
            quick(off(a * limit), off(b * limit), x)


def test_inputs_must_stay_as_they_are() -> None:
    def spoils(x: np.ndarray) -> np.ndarray:
        y = x * 2
        x[0, 0] = 7
        return y

    with pytest.raises(WrongResult, match="it changed its input 0"):
        quick(lambda x: x * 2, spoils, X)


def test_shapes_and_numbers_of_results_must_agree() -> None:
    with pytest.raises(WrongResult, match=r"has shape \(96, 64\), the reference \(64, 96\)"):
        quick(lambda x: x * 2, lambda x: (x * 2).T.copy(), X)
    with pytest.raises(CaseError, match=r"b gives result\.0, result\.1, the reference result"):
        quick(lambda x: x * 2, lambda x: (x * 2, x * 3), X)


@pytest.mark.parametrize("processes", [1, 2])
def test_what_a_callable_raises_is_said_with_its_place(processes: int) -> None:
    with pytest.raises(
        UserError,
        match=r"b raised ZeroDivisionError: integer division or modulo by zero \(test_compare\.py, line",
    ):
        flashperf.compare(
            lambda x: x + 1, lambda x: x + len(x) // 0, inputs=X, processes=processes, budget_s=0.05
        )


def test_a_worker_that_dies_is_said() -> None:
    def dies(x: np.ndarray) -> np.ndarray:
        os.kill(os.getpid(), 9)
        return x

    with pytest.raises(RuntimeError, match=r"worker \d was ended by signal 9"):
        flashperf.compare(lambda x: x + 1, dies, inputs=X, processes=2, budget_s=0.05)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"b": 3}, "b is a int; compare takes two callables"),
        ({"inputs": np.array([1.0, np.nan])}, "input 0 holds NaN or infinite values"),
        ({"inputs": {"x": np.zeros((0, 3))}}, r"input x has no elements: shape \(0, 3\)"),
        ({"cache": "luke"}, "cache is 'luke'"),
        ({"budget_s": 0}, "budget_s is 0, must be positive"),
        ({"margin": 5}, "margin is 5, a fraction such as 0.05"),
        ({"processes": 0}, "processes is 0"),
    ],
    ids=["callable", "nan", "empty", "cache", "budget", "margin", "processes"],
)
def test_bad_arguments_are_refused(options: dict[str, Any], message: str) -> None:
    arguments = {"a": softmax, "b": softmax, "inputs": X, "processes": 1} | options
    with pytest.raises(UserError, match=message):
        flashperf.compare(**arguments)


# --- torch ---------------------------------------------------------------------------


def torch_softmax(x: Any) -> Any:
    return x.softmax(-1)


def torch_softmax_thrice(x: Any) -> Any:
    return (x.exp() / x.exp().sum(-1, keepdim=True) + torch_softmax(x) + torch_softmax(x)) / 3


def torch_forward_backward(x: Any, w: Any) -> Any:
    y = (x @ w).relu().sum()
    y.backward()
    return y.detach()


def test_torch_callables_are_compared_in_processes() -> None:
    torch = pytest.importorskip("torch")
    x = torch.randn(64, 256, generator=torch.Generator().manual_seed(0))
    result = flashperf.compare(torch_softmax, torch_softmax_thrice, inputs=x, budget_s=0.4, processes=2)
    assert result.comparison.ratio.value > 1
    assert result.prepared.reference == "torch_softmax in float64"
    assert result.comparison.processes == 2
    assert result.error < 1e-5


def test_gradients_of_the_inputs_are_results() -> None:
    torch = pytest.importorskip("torch")
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(8, 16, generator=generator, requires_grad=True)
    w = torch.randn(16, 4, generator=generator)

    def wrong_gradient(x: Any, w: Any) -> Any:
        y = torch_forward_backward(x, w)
        x.grad.mul_(1.01)
        return y

    assert quick(torch_forward_backward, torch_forward_backward, (x, w)).verdict != "slower"
    with pytest.raises(WrongResult, match=r"gradient of 0\["):
        quick(torch_forward_backward, wrong_gradient, (x, w))
    assert x.grad is None  # the user's own tensors are never run


def test_a_torch_module_is_its_own_reference_in_double() -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    x = torch.randn(8, 16)
    result = quick(module, lambda v: module(v) + 0, x)
    assert result.prepared.reference == "Sequential in float64"
    assert 0 < result.error < 1e-5
    assert module[0].weight.dtype == torch.float32


def test_bf16_results_are_judged_in_their_own_roundings() -> None:
    torch = pytest.importorskip("torch")
    x = torch.randn(16, 64, generator=torch.Generator().manual_seed(0)).bfloat16()
    result = quick(torch_softmax, torch_softmax_thrice, x)
    assert 1e-5 < result.error < 0.03
    with pytest.raises(WrongResult):
        quick(torch_softmax, lambda v: torch_softmax(v) * 1.2, x)


# --- scripts and sessions ------------------------------------------------------------

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
