"""Diagnosis of cases: each mechanism from synthetic measurements, none from measurements that show none."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from planted_cases import (
    NONE,
    PLANTED,
    case,
    no_hardware_path,
    pair,
    path,
    point,
    quantising,
)

from flashperf.cases.diagnosis import CANT_TELL, Diagnosis, diagnose
from flashperf.cases.measured import crossover
from flashperf.cases.rules import MECHANISMS, RULES


def test_every_mechanism_that_can_be_named_is_tested() -> None:
    assert set(PLANTED) == set(MECHANISMS)
    assert len(RULES) == len(MECHANISMS)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_planted_mechanism_is_named_with_sign_and_size(mechanism: str) -> None:
    found = diagnose(PLANTED[mechanism])
    assert (found.mechanism, found.sign) == (mechanism, "slower")
    assert 0.5 <= found.explained <= 2
    assert found.because
    assert found.confidence == ("medium" if found.by_exclusion else "high")


def test_only_those_two_argue_by_exclusion() -> None:
    by_exclusion = {name for name, measured in PLANTED.items() if diagnose(measured).by_exclusion}
    assert by_exclusion == {"no hardware path", "kernel unfit for the shape"}


def test_a_loss_without_any_count_that_differs_is_not_explained() -> None:
    found = diagnose(case(point(100, pair(path(1e-3), path(3e-3)))))
    assert (found.sign, found.mechanism, found.confidence) == ("slower", CANT_TELL, "low")
    assert "nothing that was counted" in found.because


def test_a_mechanism_of_the_wrong_size_is_not_named() -> None:
    measured = pair(path(1e-3), path(9e-3, {"copied_bytes": 16e6}, {"copy": 1e-3}))
    found = diagnose(case(point(1, measured)))
    assert found.mechanism == CANT_TELL
    assert "transfer predicts 12% of it" in found.because
    assert found.candidates == (("transfer", pytest.approx(0.125)),)


def test_two_mechanisms_that_fit_as_well_are_both_named_with_low_confidence() -> None:
    facts = {"copied_bytes": 16e6}
    measured = pair(path(1e-3), path(3e-3, facts, {"copy": 2e-3, "quantise": 2e-3}))
    found = diagnose(case(point(1, measured)))
    assert (found.mechanism, found.confidence) == ("transfer or quantising", "low")


@pytest.mark.parametrize("time_s, sign, confidence", [(0.5e-3, "faster", "high"), (1e-3, "equal", "high")])
def test_a_path_that_does_not_lose_gets_no_mechanism(time_s: float, sign: str, confidence: str) -> None:
    found = diagnose(case(point(1, pair(path(1e-3), path(time_s, {"copied_bytes": 1e6}, {"copy": 1e-3})))))
    assert (found.sign, found.mechanism, found.confidence) == (sign, "", confidence)
    assert math.isnan(found.explained)


def test_an_interval_that_holds_one_gives_no_diagnosis() -> None:
    measured = pair(path(1e-3), path(3e-3, {"copied_bytes": 16e6}, {"copy": 2e-3}), sure=False)
    found = diagnose(case(point(1, measured)))
    assert (found.sign, found.mechanism, found.confidence) == (CANT_TELL, "", "low")


def test_a_difference_that_grows_with_the_size_is_no_fixed_cost() -> None:
    sizes = (100, 10_000, 1_000_000)
    grows = case(*(point(n, pair(path(1e-8 * n), path(3e-8 * n))) for n in sizes))
    assert diagnose(grows).mechanism == CANT_TELL


def test_a_size_that_changes_no_work_is_no_evidence_of_a_fixed_cost() -> None:
    facts = {"work": 4e6, "useful": 1e5}
    same = [point(n, pair(path(1e-3, {"work": 2e6}), path(1.6e-3, facts))) for n in (64, 256)]
    assert diagnose(case(*same)).mechanism == "useless work"


def test_twice_the_work_does_not_explain_twenty_times_the_time() -> None:
    measured = pair(path(1e-3, {"work": 1e6}), path(20e-3, {"work": 2e6, "useful": 1e6}))
    assert diagnose(case(point(1, measured))).mechanism == CANT_TELL


def test_a_narrow_type_that_is_only_as_slow_as_its_casts_has_a_hardware_path() -> None:
    assert diagnose(no_hardware_path(narrow_s=2.5e-3, cast_s=2.6e-3)).mechanism == CANT_TELL


def test_a_narrow_type_that_catches_up_at_larger_sizes_has_a_hardware_path() -> None:
    small = no_hardware_path().points[0]
    large = point(1000, pair(path(10e-3, {"operand_bits": 32.0}), path(11e-3, {"operand_bits": 16.0})))
    assert diagnose(case(small, large)).mechanism == CANT_TELL


def test_a_mechanism_that_predicts_comes_before_one_by_exclusion() -> None:
    other = path(1.5e-3, {"copied_bytes": 1e6}, {"quantise": 1e-6, "copy": 0.75e-3})
    control = quantising().points[1]
    found = diagnose(case(point(200, pair(path(1e-3), other)), control))
    assert {name for name, _ in found.candidates} == {"transfer", "quantising", "kernel unfit for the shape"}
    assert (found.mechanism, found.by_exclusion) == ("transfer", False)


def test_a_kernel_that_loses_on_the_other_shape_too_is_not_called_unfit() -> None:
    found = diagnose(quantising(spent_s=1e-6, other_s=1.4e-3, control_ratio=1.3))
    assert found.mechanism == CANT_TELL


def crossing(*signs: str) -> str:
    times = {"slower": 2e-3, "faster": 0.5e-3, "equal": 1e-3}
    along = [(10.0**n, pair(path(1e-3), path(times.get(sign, 1e-3), NONE))) for n, sign in enumerate(signs)]
    unsure = [
        (x, replace(p, ratio=replace(p.ratio, verdict="unresolved")) if sign == "?" else p)
        for (x, p), sign in zip(along, signs, strict=True)
    ]
    return crossover(unsure, "n").text


def test_the_crossover_is_bracketed_by_confident_signs() -> None:
    assert crossing("slower", "slower", "faster") == "slower up to n=10, faster from 100"
    assert crossing("faster", "?", "equal", "slower") == "faster up to n=1, slower from 1000"
    assert crossing("slower", "slower") == "slower at every n tried"
    assert crossing("slower", "?") == "slower or undecided at every n tried"
    assert crossing("slower", "faster", "slower") == "2 changes of sign along n"
    assert crossing("?", "?") == "can't tell"
    assert crossing("slower") == "not swept"


def test_a_diagnosis_lists_what_every_rule_predicted() -> None:
    found = diagnose(PLANTED["more threads than cores"])
    assert isinstance(found, Diagnosis)
    assert dict(found.candidates).keys() == {"more threads than cores", "waking threads"}
