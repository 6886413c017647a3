"""``flashperf.compare``: right and wrong results of NumPy and torch callables; what is wrong is never timed."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from pair_cases import X, quick, softmax, softmax_thrice

import flashperf
from flashperf.errors import UserError
from flashperf.problem import CaseError, WrongResult

pytestmark = pytest.mark.slow  # imports torch in eight processes


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
        match=r"b raised ZeroDivisionError: integer division or modulo by zero \(test_compare_results\.py, line",
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
