"""Placement under given roofs: closed forms only, no machine involved."""

from __future__ import annotations

import math

import pytest

from flashperf.roofline import Roof, place

ROOF = Roof("toy", flops_per_s=100e9, bytes_per_s=10e9, source="given", launch_s=5e-6)


def test_a_copy_is_bound_by_memory() -> None:
    placement = place(0, 10**9, 0.2, ROOF)
    assert placement.bound == "memory"
    assert placement.fraction_of_roof == pytest.approx(0.5)
    assert placement.bytes_per_s == pytest.approx(5e9)
    assert placement.intensity_flops_per_byte == 0
    assert placement.model_error == ""


def test_above_the_ridge_a_kernel_is_bound_by_compute() -> None:
    below = place(9 * 10**9, 10**9, 0.2, ROOF)
    above = place(11 * 10**9, 10**9, 0.2, ROOF)
    assert (below.bound, above.bound) == ("memory", "compute")
    assert above.fraction_of_roof == pytest.approx(0.11 / 0.2)
    assert above.intensity_flops_per_byte == pytest.approx(11)


def test_many_small_launches_are_bound_by_launching() -> None:
    placement = place(1000, 1000, 100e-6, ROOF, launches=10)
    assert placement.bound == "launch"
    assert placement.fraction_of_roof == pytest.approx(0.5)


def test_a_fraction_above_one_is_a_model_error_not_clipped() -> None:
    placement = place(0, 10**9, 0.05, ROOF)
    assert placement.fraction_of_roof == pytest.approx(2.0)
    assert "2 times what the memory roof allows" in placement.model_error


def test_without_a_roof_there_are_rates_only() -> None:
    placement = place(10**9, 0, 0.5)
    assert placement.flops_per_s == pytest.approx(2e9)
    assert placement.intensity_flops_per_byte == math.inf
    assert math.isnan(placement.fraction_of_roof)
    assert (placement.bound, placement.roof_source) == ("", "no roof measured")


@pytest.mark.parametrize(
    "flops, n_bytes, seconds", [(0, 0, 1.0), (-1, 5, 1.0), (1, 1, 0.0), (1, 1, math.nan)]
)
def test_nonsense_is_refused(flops: int, n_bytes: int, seconds: float) -> None:
    with pytest.raises(ValueError):
        place(flops, n_bytes, seconds, ROOF)


def test_a_roof_has_positive_rates() -> None:
    with pytest.raises(ValueError, match="rates must be positive"):
        Roof("bad", 0.0, 1.0, "given")
