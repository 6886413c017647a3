"""The checker: right outputs pass, and wrong ones fail with the place, the error and the limit."""

from __future__ import annotations

import dataclasses
import math

import mutants
import numpy as np
import pytest

from flashperf import check as check_module
from flashperf.check import FLOOR_SNR_DB, check_output, check_outputs, snr_db
from flashperf.dtypes import aligned_empty, cast, poison, to_bf16
from flashperf.records import ArraySpec, Check, Tolerance

EXACT = Tolerance(0.0, 0.0, "exact")
CLOSE = Tolerance(1e-3, 1e-6, "three digits")
OUTPUT_MUTANTS = [
    name for name in mutants.MUTANTS if name not in ("only_once", "accumulates", "input_modified")
]


def run(binder: str) -> Check:
    """Call one variant of the toy mechanism once on poisoned outputs, and check what it wrote."""
    case, spec = mutants.case(), mutants.outputs(mutants.case())
    inputs = mutants.make_inputs(case)
    out = {name: aligned_empty(s.shape, s.dtype) for name, s in spec.items()}
    bind = mutants.right if binder == "right" else mutants.MUTANTS[binder][0]
    call = bind(case, inputs, out)
    for array in out.values():
        poison(array)
    call()
    tolerance = mutants.mechanism().tolerance(case)
    return check_outputs(spec, out, mutants.reference(case, mutants.make_inputs(case)), tolerance)


def test_right_output_passes() -> None:
    check = run("right")
    assert check.passed
    assert check.reason == ""
    assert 0 < check.max_abs_error < check.limit
    assert check.snr_db > 120


@pytest.mark.parametrize("name", OUTPUT_MUTANTS)
def test_mutant_is_rejected(name: str) -> None:
    check = run(name)
    assert not check.passed
    assert mutants.MUTANTS[name][1] in check.reason


def test_error_limit_and_place_are_reported() -> None:
    reference = np.array([[1.0, 2.0], [-4.0, 8.0]])
    got = np.array([[1.0, 2.0], [-4.1, 8.1]], np.float32)
    check = check_output("y", got, "f32", reference, Tolerance(0.01, 0.0, "one percent"))
    assert not check.passed
    assert check.worst_index == (1, 0)  # the same error, but on the smaller number
    assert check.max_abs_error == pytest.approx(0.1, rel=1e-5)
    assert check.max_rel_error == pytest.approx(0.1 / 8, rel=1e-5)
    assert check.limit == pytest.approx(0.04)
    assert "y[1, 0] is -4.1, the reference -4: error 0.1 above the limit 0.04 (one percent)" in check.reason


def test_tolerance_is_absolute_plus_relative() -> None:
    reference = np.array([100.0, 1000.0])
    for error, passed in ((0.59, True), (0.61, False)):
        got = reference + np.array([0.0, error])
        check = check_output("y", got, "f64", reference, Tolerance(5e-4, 0.1, "both"))
        assert check.passed is passed


def test_zeros_fail_even_within_an_absolute_tolerance() -> None:
    reference = np.full(8, 1e-7)
    check = check_output("y", np.zeros(8, np.float32), "f32", reference, Tolerance(0.0, 1e-6, "loose"))
    assert not check.passed
    assert check.snr_db == 0
    assert f"below {FLOOR_SNR_DB:.1f} dB" in check.reason


def test_zeros_pass_where_zeros_are_right() -> None:
    check = check_output("y", np.zeros(8, np.float32), "f32", np.zeros(8), EXACT)
    assert check.passed
    assert check.snr_db == math.inf
    assert not check_output("y", np.full(8, 1e-3, np.float32), "f32", np.zeros(8), EXACT).passed


def test_signal_to_noise_is_judged_over_all_elements() -> None:
    reference = np.ones(100)
    got = (reference + 0.01).astype(np.float32)
    tolerance = Tolerance(0.1, 0.0, "elements", min_snr_db=45.0)
    check = check_output("y", got, "f32", reference, tolerance)
    assert check.snr_db == pytest.approx(40.0, abs=1e-3)
    assert not check.passed
    assert "40.0 dB, below 45.0 dB" in check.reason
    assert check_output("y", got, "f32", reference, dataclasses.replace(tolerance, min_snr_db=39.0)).passed


def test_snr_of_known_numbers() -> None:
    assert snr_db(np.array([3.0, 4.0]), np.array([0.3, 0.4])) == pytest.approx(20.0)
    assert snr_db(np.ones(3), np.zeros(3)) == math.inf
    assert snr_db(np.zeros(3), np.ones(3)) == -math.inf


def test_nan_and_infinity_must_be_where_the_reference_has_them() -> None:
    reference = np.array([1.0, np.nan, np.inf, -np.inf])
    assert check_output("y", reference.astype(np.float32), "f32", reference, CLOSE).passed
    for index, wrong in ((0, np.nan), (0, np.inf), (1, 1.0), (2, -np.inf), (3, 1.0)):
        got = reference.astype(np.float32)
        got[index] = wrong
        check = check_output("y", got, "f32", reference, CLOSE)
        assert not check.passed
        assert check.worst_index == (index,)
        assert check.snr_db == -math.inf


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16"])
def test_poison_left_over_is_called_unwritten(dtype: str) -> None:
    reference = np.linspace(1, 2, 64)
    got = aligned_empty((64,), dtype)
    poison(got)
    got[:63] = cast(reference, dtype)[:63]
    check = check_output("y", got, dtype, reference, Tolerance(0.01, 0.0, "rounding"))
    assert check.reason == "1 of 64 elements never written, first y[63]"
    got[63] = cast(reference, dtype)[63]
    assert check_output("y", got, dtype, reference, Tolerance(0.01, 0.0, "rounding")).passed


def test_integers_are_compared_as_numbers() -> None:
    reference = np.array([-1.0, 0.0, 127.0])
    assert check_output("q", np.array([-1, 0, 127], np.int8), "i8", reference, EXACT).passed
    assert not check_output("q", np.array([-1, 0, 126], np.int8), "i8", reference, EXACT).passed


def test_bf16_values_are_widened_not_read_as_integers() -> None:
    reference = np.array([1.0, -2.5, 3.0])
    assert check_output("y", to_bf16(reference), "bf16", reference, EXACT).passed
    check = check_output("y", reference.astype(np.float32), "bf16", reference, EXACT)
    assert check.reason == "y has dtype float32, should be bf16 (uint16)"


def test_what_is_not_an_output_is_rejected() -> None:
    assert "is a list" in check_output("y", [1.0], "f32", np.ones(1), EXACT).reason  # type: ignore[arg-type]
    assert (
        "no elements" in check_output("y", np.ones((0, 3), np.float32), "f32", np.ones((0, 3)), EXACT).reason
    )
    got = np.ones((2, 3), np.float32)
    assert (
        "has shape (2, 3), the reference (3, 2)"
        in check_output("y", got, "f32", np.ones((3, 2)), EXACT).reason
    )


def test_outputs_are_judged_together() -> None:
    specs = {"y": ArraySpec((2,), "f32"), "z": ArraySpec((2,), "f32")}
    reference = {"y": np.ones(2), "z": np.ones(2)}
    good = np.ones(2, np.float32)
    near = np.array([1.0, 1.0005], np.float32)
    check = check_outputs(specs, {"y": good, "z": near}, reference, CLOSE)
    assert check.passed
    assert check.output == "z"  # the one nearest to its limit speaks for all
    large = {"y": np.array([1e6, 1.0]), "z": np.ones(2)}
    got = {"y": np.array([1e6 + 100, 1.0], np.float32), "z": near}  # a tenth and half of their limits
    assert check_outputs(specs, got, large, CLOSE).output == "z"
    check = check_outputs(specs, {"y": near * 2, "z": good}, reference, CLOSE)
    assert not check.passed
    assert check.output == "y"
    assert check_outputs(specs, {"y": good}, reference, CLOSE).reason == "the call gives no output z"
    assert (
        "reference gives no" in check_outputs(specs, {"y": good, "z": good}, {"y": np.ones(2)}, CLOSE).reason
    )
    assert not check_outputs({}, {}, {}, CLOSE).passed
    noisy = {"y": np.ones(2, np.float32), "z": np.array([1.0005, 1.0], np.float32)}
    strict = Tolerance(1e-3, 1e-6, "elements", min_snr_db=100.0)
    assert check_outputs(specs, noisy, reference, strict).output == "z"
    swapped = {"y": noisy["z"], "z": np.array([1.0009, 1.0], np.float32)}
    assert (
        check_outputs(specs, swapped, reference, strict).output == "y"
    )  # the first that fails, not the nearest
    wrong = check_outputs(specs, {"y": good, "z": good}, {"y": np.ones(3), "z": np.ones(2)}, CLOSE)
    assert wrong.reason == "the reference of y has shape (3,), declared (2,)"


def test_what_lies_in_a_later_chunk_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_module, "CHUNK", 8)
    reference = np.arange(1.0, 61.0).reshape(6, 10)
    got = reference.astype(np.float32)
    tolerance = Tolerance(0.0, 1e-3, "elements")
    passed = check_output("y", got, "f32", reference, tolerance)
    assert passed.passed
    assert passed.snr_db == math.inf
    got[4, 3] += 0.5
    failed = check_output("y", got, "f32", reference, tolerance)
    assert failed.worst_index == (4, 3)
    assert failed.max_abs_error == 0.5
    assert failed.max_rel_error == pytest.approx(0.5 / 60)
    got.view(np.uint8).reshape(6, 10, 4)[4, 5:] = 0xFF
    assert (
        "5 of 60 elements never written, first y[4, 5]"
        in check_output("y", got, "f32", reference, tolerance).reason
    )
