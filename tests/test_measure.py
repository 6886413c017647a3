"""The engine on a scripted clock and on mutants: wrong kernels are never timed, blocks are balanced."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable

import mutants
import numpy as np
import pytest
from scripted import ScriptedProbe

from flashperf.disturbance import NoProbe
from flashperf.dtypes import aligned_empty
from flashperf.measure import CaseError, WrongResult, bind_case, measure_pair
from flashperf.problem import aligned_like, load_problem
from flashperf.records import Arrays, Case, Mechanism
from flashperf.timers import ScriptedClock


def timed(
    clock: ScriptedClock, seconds: float, log: list[str] | None = None, name: str = ""
) -> mutants.Binder:
    """A right kernel that takes ``seconds`` of the scripted clock."""

    def bind(case: Case, inputs: Arrays, out: Arrays) -> Callable[[], None]:
        call = mutants.right(case, inputs, out)

        def run() -> None:
            call()
            clock.advance(seconds)
            if log is not None:
                log.append(name)

        return run

    return bind


def pair_of(clock: ScriptedClock, a_s: float, b_s: float, log: list[str] | None = None) -> Mechanism:
    return mutants.mechanism(a=timed(clock, a_s, log, "A"), b=timed(clock, b_s, log, "B"))


@pytest.mark.parametrize("name", mutants.MUTANTS)
def test_no_mutant_is_timed(name: str) -> None:
    binder, reason = mutants.MUTANTS[name]
    clock, mechanism = ScriptedClock(tick_ns=100), mutants.mechanism(mutant=binder)
    with pytest.raises(WrongResult) as caught:
        measure_pair(
            mechanism, mutants.case(), mutants.case("mutant"), 1.0, np.random.default_rng(0), clock=clock
        )
    assert reason in str(caught.value)
    assert str(caught.value).startswith("toy/mutant/cpu/f32/m=24-n=20: wrong result, not timed: ")
    assert not caught.value.check.passed


def test_the_right_kernel_is_bound_and_checked() -> None:
    clock = ScriptedClock()
    bound = bind_case(pair_of(clock, 0.25, 0.5), mutants.case("a"), clock)
    assert bound.check.passed
    assert bound.first_call_s == pytest.approx(0.25)
    assert all(array.ctypes.data % 64 == 0 for array in (*bound.inputs.values(), *bound.outputs.values()))


def test_an_integer_output_left_unwritten_is_found() -> None:
    """-1 is both the poison of an integer and a fine result: the second poison differs."""

    def bind(case: Case, inputs: Arrays, out: Arrays) -> Callable[[], None]:
        return lambda: None

    mechanism = dataclasses.replace(
        mutants.mechanism(nothing=bind),
        outputs=lambda case: {"q": mutants.ArraySpec((4,), "i8")},
        reference=lambda case, inputs: {"q": np.full(4, -1.0)},
    )
    with pytest.raises(WrongResult, match="above the limit"):
        bind_case(mechanism, mutants.case("nothing"))


def poisoned_inputs(value: float) -> Mechanism:
    def make(case: Case) -> Arrays:
        inputs = mutants.make_inputs(case)
        inputs["w"][2, 3] = value
        return inputs

    return dataclasses.replace(mutants.mechanism(), make_inputs=make)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_inputs_must_be_finite(value: float) -> None:
    with pytest.raises(CaseError, match=rf"input w is {value} at \[2, 3\]; inputs must be finite"):
        load_problem(poisoned_inputs(value), mutants.case())


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((0, 4), np.float32), r"input x has no elements: shape \(0, 4\)"),
        (np.zeros((4, 4), np.float32).T[:2], "input x is not C-contiguous"),
        ([1.0], "input x is a list, not a NumPy array"),
        (np.array([1, 0x7FC0], np.uint16), r"input x is nan at \[1\]"),
    ],
    ids=["empty", "strided", "list", "bf16_nan"],
)
def test_inputs_that_are_no_arrays_to_measure_are_refused(array: np.ndarray, message: str) -> None:
    mechanism = dataclasses.replace(mutants.mechanism(), make_inputs=lambda case: {"x": array})
    with pytest.raises(CaseError, match=message):
        load_problem(mechanism, mutants.case())


def test_a_kernel_that_can_not_be_prepared_is_a_bad_case() -> None:
    from flashperf.native import PrepareError

    def bind(case: Case, inputs: Arrays, out: Arrays) -> Callable[[], None]:
        raise PrepareError("gemm: x has dtype float64, needs f32")

    with pytest.raises(CaseError, match="toy/bad/cpu/f32/m=24-n=20: gemm: x has dtype float64"):
        bind_case(mutants.mechanism(bad=bind), mutants.case("bad"))


def test_measured_ratio_and_samples() -> None:
    clock = ScriptedClock()
    a, b, ratios = measure_pair(
        pair_of(clock, 0.01, 0.03), mutants.case("a"), mutants.case("b"), 2.0, np.random.default_rng(1),
        clock=clock, probe=NoProbe(),
    )  # fmt: skip
    assert ratios == pytest.approx([np.log(3)] * len(ratios))
    assert a.samples_s == pytest.approx([0.01] * 4 * len(ratios))
    assert b.samples_s == pytest.approx([0.03] * 4 * len(ratios))
    assert (a.timer, a.cache_state, a.calls_per_sample, a.disturbed) == ("scripted", "warm", 1, 0)
    assert a.first_call_s == pytest.approx(0.01)
    assert a.check.passed


def test_short_calls_are_repeated_within_a_sample() -> None:
    clock = ScriptedClock()
    a, _, ratios = measure_pair(
        pair_of(clock, 1e-6, 4e-6), mutants.case("a"), mutants.case("b"), 0.005, np.random.default_rng(1),
        clock=clock, probe=NoProbe(),
    )  # fmt: skip
    assert a.calls_per_sample == 100
    assert a.samples_s[0] == pytest.approx(1e-6)
    assert ratios == pytest.approx([np.log(4)] * len(ratios))


@pytest.mark.parametrize(("budget_s", "blocks"), [(0.001, 1), (1.0, 5)])
def test_budget_is_kept_but_for_the_first_block(budget_s: float, blocks: int) -> None:
    """A block is 8 samples and 8 lead-in calls of 10 ms; binding, checks and calibration are 10 more."""
    clock = ScriptedClock()
    _, _, ratios = measure_pair(
        pair_of(clock, 0.01, 0.01), mutants.case("a"), mutants.case("b"), budget_s, np.random.default_rng(1),
        clock=clock, probe=NoProbe(),
    )  # fmt: skip
    assert len(ratios) == blocks
    assert clock.now_ns * 1e-9 <= max(budget_s, 0.25)


def test_a_result_that_goes_wrong_while_timed_is_found() -> None:
    """The outputs of the last block are checked too."""
    clock, calls = ScriptedClock(), Counter()

    def bind(case: Case, inputs: Arrays, out: Arrays) -> Callable[[], None]:
        call = mutants.right(case, inputs, out)

        def run() -> None:
            call()
            clock.advance(0.01)
            calls["b"] += 1
            if calls["b"] > 10:
                out["y"][0, 0] += 1

        return run

    mechanism = mutants.mechanism(a=timed(clock, 0.01), b=bind)
    with pytest.raises(WrongResult, match=r"y\[0, 0\]"):
        measure_pair(
            mechanism, mutants.case("a"), mutants.case("b"), 0.5, np.random.default_rng(0), clock=clock
        )


def test_repeated_samples_are_counted_in_the_measurement() -> None:
    clock = ScriptedClock()
    a, b, _ = measure_pair(
        pair_of(clock, 0.01, 0.01), mutants.case("a"), mutants.case("b"), 0.01, np.random.default_rng(1),
        clock=clock, probe=ScriptedProbe({1, 5}),
    )  # fmt: skip
    assert a.disturbed == b.disturbed == 2


def test_cold_caches_are_swept_and_said() -> None:
    clock = ScriptedClock()
    a, _, _ = measure_pair(
        pair_of(clock, 1e-6, 1e-6), mutants.case("a"), mutants.case("b"), 1e-9, np.random.default_rng(1),
        cache="cold", clock=clock, probe=NoProbe(),
    )  # fmt: skip
    assert a.cache_state.startswith("cold")
    assert a.calls_per_sample == 1  # a second call would find the caches warm
    with pytest.raises(CaseError, match="unknown cache state 'could': did you mean cold"):
        measure_pair(
            mutants.mechanism(), mutants.case(), mutants.case(), 1, np.random.default_rng(), cache="could"
        )


def test_copies_are_aligned_and_equal() -> None:
    for array in (
        np.arange(7, dtype=np.int16),
        np.eye(3, dtype=bool),
        np.zeros((0, 2)),
        aligned_empty((3,), "f16"),
    ):
        copy = aligned_like(array)
        assert copy.dtype == array.dtype
        assert copy.tobytes() == array.tobytes()
        assert not np.shares_memory(copy, array)
        assert copy.ctypes.data % 64 == 0 or copy.size == 0
