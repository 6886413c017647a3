"""The crossover finder: its answers on curves whose crossings are known, and how often they are right."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from flashperf.crossover.finder import (
    Finding,
    Measure,
    OutOfTime,
    _stretched,
    find,
    interval,
    scan_sizes,
    window_sizes,
)
from flashperf.crossover.fit import fit_cost, huber_quadratics
from flashperf.crossover.pattern import changes, strict_t
from flashperf.crossover.simulation import MISFITS, NOISE_LEVELS, SLOPES, simulate

WORKERS = 8


def measured(log_ratio: Callable[[np.ndarray], np.ndarray], sd: float = 0.01, seed: int = 0) -> Measure:
    """Measures a curve with normal noise."""
    rng = np.random.default_rng(seed)

    def measure(sizes: Sequence[int], blocks: int) -> np.ndarray:
        truth = log_ratio(np.asarray(sizes, dtype=float))[None, :, None]
        return truth + sd * rng.standard_normal((WORKERS, len(sizes), blocks))

    return measure


@pytest.mark.slow
@pytest.mark.parametrize("slope", SLOPES)
def test_answers_are_right_under_replayed_noise(slope: float) -> None:
    for misfit in MISFITS:
        for level in NOISE_LEVELS:
            row = simulate(slope, misfit, level)
            print(row)
            assert row.passed, row


def test_steep_curves_get_intervals_and_flat_ones_brackets() -> None:
    steep, flat = simulate(0.6, 0.0, 1.0, runs=50), simulate(0.05, 0.0, 1.0, runs=50)
    assert steep.intervals == 1
    assert steep.half_width < 0.06
    assert flat.intervals < 0.1 < flat.half_width


def test_one_crossing_is_found_with_who_is_faster_where() -> None:
    finding = find(measured(lambda n: 0.5 * np.log(n / 300)), 1, 4096)
    assert finding.kind == "crossings"
    (crossing,) = finding.crossings
    assert crossing.resolved
    assert crossing.low <= 300 <= crossing.high
    assert crossing.high / crossing.low < 1.1
    assert (crossing.below, crossing.above) == ("b", "a")
    assert crossing.value == pytest.approx(300, rel=0.05)
    assert crossing.slope == pytest.approx(0.5, rel=0.1)


def test_the_other_direction_is_the_mirror_image() -> None:
    up = find(measured(lambda n: 0.5 * np.log(n / 300), seed=3), 1, 4096).crossings[0]
    down = find(measured(lambda n: -0.5 * np.log(n / 300), seed=3), 1, 4096).crossings[0]
    assert (down.below, down.above) == (up.above, up.below)
    assert (down.low, down.high) == pytest.approx((up.low, up.high), rel=0.1)


def test_no_crossing_names_the_faster_side() -> None:
    finding = find(measured(lambda n: 0.4 + 0.02 * np.log(n)), 1, 4096)
    assert (finding.kind, finding.faster, finding.crossings) == ("none", "a", ())
    assert find(measured(lambda n: -0.4 + 0 * n), 1, 4096).faster == "b"


def test_none_takes_more_confidence_at_every_size_than_one_sign() -> None:
    def measure(sizes: Sequence[int], blocks: int) -> np.ndarray:
        spread = np.array([-1, -1, -1, -1, 1, 1, 1, 1.0])[:, None] * np.ones(len(sizes))
        spread[:, 4] *= 0.9 * math.sqrt(7) / 3.0  # t about 3 at the fifth size, enough for one but not for 13
        spread[:, [n for n in range(len(sizes)) if n != 4]] *= 0.05
        return np.repeat((1.0 + spread)[:, :, None], blocks, axis=2)

    finding = find(measure, 1, 4096)
    assert all(point.sign == 1 for point in finding.scan)
    sizes = scan_sizes(1, 4096)
    assert (finding.kind, finding.faster, finding.unknown) == ("unresolved", "a", (sizes[3], sizes[5]))


def test_two_crossings_are_refined_apart() -> None:
    finding = find(measured(lambda n: 0.3 * (np.abs(np.log(n / 64)) - math.log(8))), 1, 4096)
    assert [c.below for c in finding.crossings] == ["a", "b"]
    assert [c.resolved for c in finding.crossings] == [True, True]
    assert finding.crossings[0].low <= 8 <= finding.crossings[0].high
    assert finding.crossings[1].low <= 512 <= finding.crossings[1].high


def test_equal_variants_cannot_be_told_apart() -> None:
    finding = find(measured(lambda n: 0 * n, sd=0.05), 1, 4096)
    assert finding.kind == "unresolved"
    assert finding.faster == ""
    assert finding.unknown == (1, 4096)


def test_a_side_that_fades_into_noise_is_bracketed_by_the_sizes_that_are_known() -> None:
    finding = find(measured(lambda n: np.maximum(0.0, 0.3 - 0.1 * np.log(n)), sd=0.02), 1, 4096)
    assert (finding.kind, finding.faster) == ("unresolved", "a")
    assert finding.unknown is not None
    assert finding.unknown[0] <= 20
    assert finding.unknown[1] == 4096


def test_where_both_take_the_same_time_no_crossing_is_seen() -> None:
    tails = [find(measured(lambda n: np.where(n < 30, 0.3, 0.0), 0.02, seed), 1, 4096) for seed in range(200)]
    assert sum(finding.kind == "crossings" for finding in tails) <= 6


def test_a_flat_crossing_gets_the_bracket_of_the_scan() -> None:
    (crossing,) = find(measured(lambda n: 0.05 * np.log(n / 100)), 1, 4096).crossings
    assert not crossing.resolved
    assert crossing.value is None
    assert crossing.low in scan_sizes(1, 4096)
    assert crossing.low < 100 < crossing.high


def test_without_time_to_refine_the_bracket_is_the_answer() -> None:
    scan = measured(lambda n: 0.5 * np.log(n / 300))
    calls = 0

    def measure(sizes: Sequence[int], blocks: int) -> np.ndarray:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise OutOfTime
        return scan(sizes, blocks)

    (crossing,) = find(measure, 1, 4096).crossings
    assert not crossing.resolved
    assert crossing.low < 300 < crossing.high


def test_a_scan_that_ends_early_ends_the_range() -> None:
    whole = measured(lambda n: 0.4 + 0 * n)
    finding = find(lambda sizes, blocks: whole(sizes[:5], blocks), 1, 4096)
    assert [point.size for point in finding.scan] == scan_sizes(1, 4096)[:5]
    assert finding.kind == "none"


def test_one_wrong_sign_near_a_crossing_makes_no_second_crossing() -> None:
    sizes = list(range(1, 9))
    t = np.array([-9, -8, 3, -3, 0, 8, 9, 9.0])
    assert [(b.low, b.high) for b in changes(sizes, t, WORKERS)] == [(4, 6)]
    sure = strict_t(WORKERS, len(sizes)) + 1
    t[2:4] = sure, -sure
    assert [(b.low, b.high) for b in changes(sizes, t, WORKERS)] == [(2, 3), (3, 4), (4, 6)]


def test_scan_sizes_are_distinct_integers_with_both_ends() -> None:
    assert scan_sizes(1, 4096)[0] == 1
    assert scan_sizes(1, 4096)[-1] == 4096
    assert len(scan_sizes(1, 4096)) == 13
    assert scan_sizes(1, 3) == [1, 2, 3]
    with pytest.raises(ValueError, match="not 5:5"):
        scan_sizes(5, 5)


def test_windows_are_distinct_and_inside_the_range() -> None:
    assert window_sizes(2, 0.5, 1, 4096) == [1, 2, 3, 4, 5]
    sizes = window_sizes(300, 0.5, 1, 4096)
    assert len(sizes) == 7
    assert sizes[0] == pytest.approx(300 * math.exp(-0.2), abs=1)
    assert window_sizes(1.2, 9, 1, 2) == [1, 2]


def test_the_robust_fit_ignores_one_wild_block() -> None:
    x = np.linspace(-1, 1, 7)
    blocks = (0.1 + 0.5 * x - 0.2 * x**2)[None, :, None] + np.zeros((2, 7, 3))
    blocks[0, 3, 1] += 5.0
    fitted = huber_quadratics(x, blocks)
    np.testing.assert_allclose(fitted[1], [0.1, 0.5, -0.2], atol=1e-9)
    np.testing.assert_allclose(fitted[0], [0.1, 0.5, -0.2], atol=0.02)


def test_an_interval_needs_both_ends() -> None:
    x = np.linspace(-0.5, 0.5, 7)
    rng = np.random.default_rng(0)
    rising = (0.4 * x)[None, :, None] + 0.01 * rng.standard_normal((WORKERS, 7, 3))
    ends = interval(x, rising, sign_below=-1)
    assert ends is not None
    assert ends[0] < 0 < ends[2]
    assert ends[0] <= ends[1] <= ends[2]
    assert interval(x, rising + 1.0, sign_below=-1) is None
    assert interval(x, rising, sign_below=1) is None


def test_costs_are_fitted_with_no_negative_part() -> None:
    sizes = [1, 10, 100, 1000]
    fit = fit_cost(sizes, [2e-6 + 3e-9 * n for n in sizes])
    assert fit.fixed_s == pytest.approx(2e-6)
    assert fit.per_unit_s == pytest.approx(3e-9)
    assert fit.residual < 1e-9
    assert fit_cost(sizes, [1e-9 * n**1.5 for n in sizes]).fixed_s >= 0
    with pytest.raises(ValueError, match="two sizes"):
        fit_cost([1], [1.0])


def test_findings_do_not_depend_on_anything_but_the_numbers() -> None:
    def once() -> Finding:
        return find(measured(lambda n: 0.3 * np.log(n / 50), seed=1), 1, 4096)

    assert once() == once()


def test_a_jump_in_the_cost_lies_in_the_interval() -> None:
    """As at the edge of a cache or a tile: no quadratic follows it, and a fit alone misses most of them."""
    rng = np.random.default_rng(3)
    right, resolved = 0, 0
    for seed in range(60):
        edge = math.exp(rng.uniform(math.log(20), math.log(1500)))
        below, above = rng.uniform(0.05, 0.6, 2)
        jump = measured(lambda n, e=edge, b=below, a=above: np.where(n < e, -b, a), seed=seed)  # type: ignore[misc]
        (crossing,) = find(jump, 1, 4096).crossings
        right += crossing.low <= edge <= crossing.high
        resolved += crossing.resolved
    assert right >= 57
    assert resolved >= 20


def test_a_size_on_the_wrong_side_of_the_fit_stretches_the_interval() -> None:
    x = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
    signs = np.array([-9.0, -9.0, -9.0, 9.0, 9.0])
    assert _stretched((0.4, 0.5, 0.6), x, signs, 2.4, False) == (0.4, 0.5, 0.6)
    assert _stretched((0.4, 0.5, 0.6), x, signs, 2.4, True) == (0.0, 0.5, 1.0)
    assert _stretched((-1.6, -1.5, -1.4), x, signs, 2.4, False) == (-1.6, 0.5, 1.0)
    assert _stretched((1.4, 1.5, 1.6), x, signs, 2.4, False) == (0.0, 0.5, 1.6)
    mixed = np.array([-9.0, 9.0, 0.0, -9.0, 9.0])
    assert _stretched((0.4, 0.5, 0.6), x, mixed, 2.4, False) == (-2.0, 0.5, 2.0)
    for nowhere in (np.full(5, -9.0), np.full(5, 9.0), -signs):
        assert _stretched((-0.1, 0.0, 0.1), x, nowhere, 2.4, False) is None
