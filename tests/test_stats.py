"""Statistics against closed forms and SciPy, and by simulation with fixed seeds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as reference

from flashperf import stats

logs = st.lists(st.floats(-1, 1), min_size=3, max_size=12)


def test_t_interval_is_mean_and_t_quantile_times_standard_error():
    interval = stats.t_interval([1.0, 2.0, 3.0])
    half = 4.302652729911275 / math.sqrt(3)  # t(.975, 2) * sd 1 / sqrt(3)
    assert (interval.value, interval.low, interval.high) == pytest.approx((2.0, 2 - half, 2 + half))
    assert interval.confidence == 0.95
    narrower = stats.t_interval([1.0, 2.0, 3.0], 0.9)
    assert narrower.half_width == pytest.approx(2.919985580353725 / math.sqrt(3))


def test_ratio_interval_is_the_exponential_of_the_interval_of_logs():
    values = np.log([1.1, 1.2, 1.3, 1.25])
    plain, ratio = stats.t_interval(values), stats.ratio_interval(values)
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx(
        tuple(np.exp([plain.value, plain.low, plain.high]))
    )


def test_one_process_has_no_bounds_and_none_or_nan_is_an_error():
    assert stats.t_interval([0.5]) == stats.Interval(0.5, -math.inf, math.inf, 0.95)
    assert stats.ratio_interval([0.0]) == stats.Interval(1.0, 0.0, math.inf, 0.95)
    for bad in ([], [1.0, math.nan], [[1.0, 2.0]], [math.inf, 1.0]):
        with pytest.raises(ValueError, match="estimates"):
            stats.t_interval(bad)


@given(logs, st.floats(-0.5, 0.5))
def test_one_sided_p_values_agree_with_scipy(values, threshold):
    mean = stats.mean_of(values)
    if mean.standard_error < 1e-6:
        return
    above = reference.ttest_1samp(values, threshold, alternative="greater").pvalue
    below = reference.ttest_1samp(values, threshold, alternative="less").pvalue
    assert mean.p_above(threshold) == pytest.approx(above, abs=1e-12)
    assert mean.p_below(threshold) == pytest.approx(below, abs=1e-12)
    low = reference.ttest_1samp(values, -0.3, alternative="greater").pvalue
    high = reference.ttest_1samp(values, 0.3, alternative="less").pvalue
    assert mean.p_within(0.3) == pytest.approx(max(low, high), abs=1e-12)


def test_p_values_without_spread_or_without_freedom_decide_nothing_wrongly():
    same = stats.mean_of([0.25, 0.25, 0.25])
    assert (same.p_above(0.2), same.p_above(0.25), same.p_below(0.3)) == (0.0, 1.0, 0.0)
    assert stats.mean_of([5.0]).p_above(0.0) == 1.0


def test_fieller_ends_are_where_the_t_test_turns():
    rng = np.random.default_rng(1)
    whole = rng.normal(1.0, 0.1, 9)
    part = 0.3 * whole + rng.normal(0, 0.02, 9)
    interval = stats.ratio_of_means_interval(part, whole)
    assert interval.low < interval.value < interval.high
    for end in (interval.low, interval.high):
        assert reference.ttest_1samp(part - end * whole, 0.0).pvalue == pytest.approx(0.05)
    assert interval.value == pytest.approx(part.mean() / whole.mean())


def test_fieller_is_unbounded_where_the_whole_may_be_zero():
    interval = stats.ratio_of_means_interval([0.1, 0.2, 0.3], [1.0, -1.0, 0.1])
    assert (interval.low, interval.high) == (-math.inf, math.inf)
    with pytest.raises(ValueError, match="differ in length"):
        stats.ratio_of_means_interval([1.0, 2.0], [1.0, 2.0, 3.0])


def test_fieller_covers():
    rng = np.random.default_rng(2)
    held = 0
    for _ in range(400):
        whole = rng.normal(0.5, 0.1, 8)
        part = 0.4 * whole + rng.normal(0, 0.05, 8)
        interval = stats.ratio_of_means_interval(part, whole)
        held += interval.low <= 0.4 <= interval.high
    assert 0.92 <= held / 400 <= 0.98


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=30))
def test_trimmed_mean_agrees_with_scipy(values):
    assert stats.trimmed_mean(values) == pytest.approx(reference.trim_mean(values, 0.2), abs=1e-9)


def test_trimmed_mean_of_six_leaves_out_one_at_each_end():
    assert stats.trimmed_mean([100.0, 1.0, 2.0, 3.0, 4.0, -100.0]) == 2.5
    with pytest.raises(ValueError, match="trimmed"):
        stats.trimmed_mean([1.0, 2.0], 0.5)


def test_holm_by_hand_and_in_any_order():
    adjusted = stats.holm([0.01, 0.04, 0.03, 0.005])
    assert adjusted == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert stats.holm([0.6, 0.9]).tolist() == [1.0, 1.0]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_lies_between_the_plain_and_the_bonferroni_p(p):
    adjusted = stats.holm(p)
    assert (adjusted >= np.array(p)).all()
    assert (adjusted <= np.minimum(1, len(p) * np.array(p)) + 1e-15).all()


def test_welch_agrees_with_scipy_and_adds_the_run_component():
    a, b = [1.0, 1.1, 0.9, 1.05], [1.3, 1.2, 1.5, 1.4, 1.25]
    result = stats.welch(a, b)
    expected = reference.ttest_ind(b, a, equal_var=False)
    assert 2 * result.p_above(0) == pytest.approx(expected.pvalue)
    assert result.df == pytest.approx(expected.df)
    with_runs = stats.welch(a, b, run_sd=0.1, run_df=7)
    assert with_runs.standard_error**2 == pytest.approx(result.standard_error**2 + 2 * 0.1**2)
    assert 7 < with_runs.df < 12
    with pytest.raises(ValueError, match="two processes"):
        stats.welch([1.0], b)


def test_jackknife_of_a_mean_is_its_standard_error():
    x = np.random.default_rng(3).normal(size=(7, 2))
    left_out = np.array([np.delete(x, n, axis=0).mean(axis=0) for n in range(7)])
    assert stats.jackknife_standard_error(left_out) == pytest.approx(x.std(axis=0, ddof=1) / math.sqrt(7))
    with pytest.raises(ValueError, match="two groups"):
        stats.jackknife_standard_error([[1.0]])


@given(st.floats(-0.01, 0.01), st.floats(-0.5, 0.5), st.integers(0, 1))
def test_double_block_recovers_the_ratio_whatever_the_linear_drift(drift, effect, first):
    order = ("ABBABAAB", "BAABABBA")[first]
    sides = np.array([side == "B" for side in order])
    seconds = np.exp(drift * np.arange(8) + effect * sides)
    assert stats.double_block_log_ratio(seconds, order) == pytest.approx(effect, abs=1e-12)
    assert stats.double_block_log_ratio([seconds, seconds], order).shape == (2,)


def test_double_block_orders_are_both_drawn_and_bad_ones_refused():
    rng = np.random.default_rng(0)
    assert {stats.double_block_order(rng) for _ in range(20)} == {"ABBABAAB", "BAABABBA"}
    for seconds, order, message in [
        ([1.0] * 7, "ABBABAAB", "side"),
        ([1.0] * 8, "ABBAAAAB", "balanced"),
        ([1.0] * 7 + [0.0], "ABBABAAB", "positive"),
    ]:
        with pytest.raises(ValueError, match=message):
            stats.double_block_log_ratio(seconds, order)


@pytest.mark.parametrize(
    ("centre", "spread", "verdict"),
    [
        (0.10, 0.01, "slower"),
        (-0.10, 0.01, "faster"),
        (0.005, 0.005, "equivalent"),
        (0.0, 0.05, "unresolved"),
        (0.03, 0.01, "slower"),
    ],
)
def test_verdicts(centre, spread, verdict):
    values = centre + spread * np.array([-1.2, -0.8, -0.3, 0.0, 0.1, 0.5, 0.7, 1.0])
    comparison = stats.compare_log_ratios(values, margin=0.02, blocks=48)
    assert comparison.verdict == verdict
    assert (comparison.processes, comparison.blocks, comparison.margin) == (8, 48, 0.02)
    assert bool(comparison.reason) == (verdict == "unresolved")


def test_a_difference_within_the_margin_is_equivalent_even_if_significant():
    values = 0.005 + 0.0005 * np.arange(-3, 4)
    assert stats.compare_log_ratios(values, margin=0.02).verdict == "equivalent"
    assert stats.compare_log_ratios(values, margin=0.0).verdict == "slower"


def test_an_unresolved_verdict_says_what_would_settle_it():
    values = 0.05 * np.array([-1.2, -0.8, -0.3, 0.0, 0.1, 0.5, 0.7, 1.0])
    assert "processes of this spread would settle it" in stats.compare_log_ratios(values, 0.02).reason
    assert "one process" in stats.compare_log_ratios([0.1], 0.02).reason
    assert "at least 6" in stats.compare_log_ratios([0.1, 0.11, 0.1], 0.02).reason
    with pytest.raises(ValueError, match="margin"):
        stats.compare_log_ratios(values, -0.1)


def test_identical_code_is_called_slower_or_faster_no_more_often_than_said():
    rng = np.random.default_rng(4)
    verdicts = [stats.compare_log_ratios(rng.normal(0, 0.01, 8), margin=0.0).verdict for _ in range(2000)]
    assert 0.03 <= 1 - verdicts.count("unresolved") / 2000 <= 0.07


def test_a_ratio_at_the_margin_is_called_equivalent_in_at_most_one_case_of_twenty():
    rng = np.random.default_rng(5)
    edge = math.log(1.02)
    verdicts = [
        stats.compare_log_ratios(rng.normal(edge, 0.005, 8), margin=0.02).verdict for _ in range(2000)
    ]
    assert 0.03 <= verdicts.count("equivalent") / 2000 <= 0.07
