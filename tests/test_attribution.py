"""Attribution of known set functions: exact without noise, intervals that cover with it."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planting import bits, log_shares, measure, observe, replayed, switches

from flashperf.attribution import (
    Group,
    Observation,
    SwitchLevels,
    attribute,
    cycle_groups,
    estimate_workers,
    precise_enough,
    shapley,
)
from flashperf.records import Interval


def test_shapley_of_a_hand_computed_function():
    # none 0, a 1, b 0, ab 5: a adds 1 first and 5 last, b 0 first and 4 last
    assert shapley([0.0, 1.0, 0.0, 5.0]).tolist() == [3.0, 2.0]
    with pytest.raises(ValueError, match=r"2\*\*k"):
        shapley(np.zeros(6))


def test_shapley_against_all_orders():
    k, values = 4, np.random.default_rng(0).normal(size=16)
    expected = np.zeros(k)
    for order in itertools.permutations(range(k)):
        mask = 0
        for i in order:
            expected[i] += (values[mask | 1 << i] - values[mask]) / math.factorial(k)
            mask |= 1 << i
    assert shapley(values) == pytest.approx(expected)
    both = shapley(np.stack([values, 2 * values], axis=1))
    assert both == pytest.approx(np.stack([expected, 2 * expected], axis=1))


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 7), st.integers(0, 10_000))
def test_an_additive_function_is_recovered_exactly(k, seed):
    rng = np.random.default_rng(seed)
    effects = rng.normal(0, 0.3, k)
    result = attribute(measure(bits(k) @ effects, k, rng, workers=2, cycles=1), switches(k))
    assert log_shares(result) == pytest.approx(effects, abs=1e-9)
    for share, effect in zip(result.shares, effects, strict=True):
        assert (math.log(share.alone.value), math.log(share.on_top.value)) == pytest.approx((effect, effect))


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 7), st.integers(0, 10_000))
def test_pairwise_interactions_are_split_evenly(k, seed):
    rng = np.random.default_rng(seed)
    x, effects, joint = bits(k), rng.normal(0, 0.3, k), np.triu(rng.normal(0, 0.2, (k, k)), 1)
    log_times = x @ effects + np.einsum("ni,ij,nj->n", x, joint, x)
    result = attribute(measure(log_times, k, rng, workers=2, cycles=1), switches(k))
    assert log_shares(result) == pytest.approx(effects + (joint + joint.T).sum(axis=1) / 2, abs=1e-9)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_up_to_three_switches_any_function_is_split_exactly(k):
    values = np.random.default_rng(k).normal(size=1 << k)
    result = attribute(measure(values, k, np.random.default_rng(0), workers=2, cycles=1), switches(k))
    assert log_shares(result) == pytest.approx(shapley(values), abs=1e-9)
    assert math.log(result.total.value) == pytest.approx(values[-1] - values[0])


def test_one_switch_uses_both_pairs_of_its_quad():
    groups = [Group("quad", 0, (0, 1, 0, 1)), Group("quad", 0, (1, 0, 1, 0))]
    times = [np.exp([0.0, 0.1, 0.0, 0.4]), np.exp([0.5, 0.0, 0.6, 0.0])]
    observations = [Observation(0, n, groups[n], tuple(times[n].tolist())) for n in range(2)]
    estimates = estimate_workers(observations, 1)
    assert estimates.total == pytest.approx([0.4])
    assert estimates.shares == pytest.approx(np.array([[0.4]]))


def test_higher_orders_are_recovered_on_average():
    k, rng = 6, np.random.default_rng(0)
    values = np.random.default_rng(1).normal(0, 0.3, 1 << k)
    shares = [estimate_workers(measure(values, k, rng, workers=1, cycles=6), k).shares[0] for _ in range(200)]
    assert np.mean(shares, axis=0) == pytest.approx(shapley(values), abs=0.015)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 6), st.integers(0, 10_000))
def test_shares_multiply_to_the_total_to_rounding(k, seed):
    rng = np.random.default_rng(seed)
    values = rng.normal(0, 0.5, 1 << k)
    result = attribute(measure(values, k, rng, workers=3, cycles=2, noise=replayed(rng)), switches(k))
    product = math.prod(share.share.value for share in result.shares)
    assert product == pytest.approx(result.total.value, rel=1e-12)


@settings(max_examples=20, deadline=None)
@given(st.permutations(range(5)), st.integers(0, 1000))
def test_renaming_the_switches_renames_the_shares(order, seed):
    rng = np.random.default_rng(seed)
    observations = measure(rng.normal(0, 0.3, 32), 5, rng, workers=2, cycles=2, noise=replayed(rng))

    def moved(mask):
        return sum(1 << order[i] for i in range(5) if mask >> i & 1)

    renamed = []
    for o in observations:
        switch = order[o.group.switch] if o.group.switch >= 0 else -1
        group = Group(o.group.kind, switch, tuple(map(moved, o.group.masks)), o.group.weight)
        renamed.append(dataclasses.replace(o, group=group))
    before, after = (log_shares(attribute(each, switches(5))) for each in (observations, renamed))
    assert after[list(order)] == pytest.approx(before, abs=1e-9)


def test_weights_matter_where_sizes_are_sampled_otherwise():
    k, rng = 6, np.random.default_rng(0)
    values = shapley_table = np.random.default_rng(1).normal(0, 0.3, 1 << k)
    observations = [o for c in range(200) for o in observe(values, cycle_groups(k, rng, pairs=30), cycle=c)]
    flat = [dataclasses.replace(o, group=dataclasses.replace(o.group, weight=1.0)) for o in observations]
    weighted, unweighted = (estimate_workers(each, k).shares[0] for each in (observations, flat))
    assert weighted == pytest.approx(shapley(shapley_table), abs=0.015)
    assert np.abs(unweighted - shapley(shapley_table)).max() > 0.03


def test_intervals_are_t_over_workers_and_percent_is_fiellers():
    k, rng = 3, np.random.default_rng(0)
    observations = measure(bits(k) @ [0.5, 0.3, -0.1], k, rng, workers=8, noise=replayed(rng, 0.1))
    result, workers = attribute(observations, switches(k)), estimate_workers(observations, k)
    share, quantile = workers.shares[:, 0], 2.364624251592784
    half = quantile * share.std(ddof=1) / math.sqrt(8)
    assert math.log(result.shares[0].share.high) == pytest.approx(share.mean() + half)
    total = math.log(result.total.high / result.total.low) / 2
    assert total == pytest.approx(quantile * workers.total.std(ddof=1) / math.sqrt(8))
    percent = result.shares[0].percent
    end = share - percent.high / 100 * workers.total
    assert abs(end.mean()) == pytest.approx(quantile * end.std(ddof=1) / math.sqrt(8))
    assert sum(s.percent.value for s in result.shares) == pytest.approx(100)
    assert result.widest_half_width_percent == max(s.percent.half_width for s in result.shares)
    assert result.widest_half_width_log == pytest.approx(
        max(math.log(s.share.high / s.share.low) / 2 for s in result.shares)
    )


def test_percent_is_left_out_where_the_total_is_not_clear():
    k, rng = 3, np.random.default_rng(0)
    small = attribute(measure(bits(k) @ [0.01, 0.0, 0.0], k, rng, noise=replayed(rng)), switches(k))
    assert all(share.percent is None for share in small.shares)
    assert small.widest_half_width_percent is None
    nothing = attribute(
        measure(np.zeros(8), k, rng), (*switches(k), SwitchLevels("idle", "x", "y", active=False))
    )
    assert all(share.percent is None for share in nothing.shares)


def test_an_inactive_switch_has_share_exactly_one_and_no_bit():
    names = (
        SwitchLevels("a", "x", "y"),
        SwitchLevels("idle", "x", "y", active=False),
        SwitchLevels("b", "x", "y"),
    )
    rng = np.random.default_rng(0)
    result = attribute(measure(bits(2) @ [0.2, 0.4], 2, rng, noise=replayed(rng, 0.1)), names)
    first, idle, last = result.shares
    assert (idle.active, idle.share.low, idle.share.value, idle.share.high) == (False, 1.0, 1.0, 1.0)
    assert idle.percent.value == 0.0
    assert (first.switch, last.switch) == ("a", "b")
    assert math.log(last.share.value) == pytest.approx(0.4, abs=0.05)
    with pytest.raises(ValueError, match="no switch is active"):
        attribute([], switches(2, active=False))


def test_the_total_of_a_whole_attribution_covers():
    k, rng, held = 4, np.random.default_rng(0), np.zeros(5)
    values = np.log1p(bits(k) @ [0.5, 0.3, 0.1, -0.2] + 0.3 * bits(k)[:, 0] * bits(k)[:, 1])
    truth = np.append(shapley(values), values[-1])
    for _ in range(400):
        result = attribute(measure(values, k, rng, noise=replayed(rng)), switches(k))
        intervals = [*(share.share for share in result.shares), result.total]
        held += [math.log(i.low) <= t <= math.log(i.high) for i, t in zip(intervals, truth, strict=True)]
    assert ((held / 400 >= 0.92) & (held / 400 <= 0.98)).all(), held / 400


def test_a_share_that_depends_on_the_process_is_said_to():
    k, rng = 3, np.random.default_rng(0)

    def run(placement):
        observations = []
        for worker in range(8):
            values = bits(k) @ [0.3 + placement * rng.normal(), 0.2, 0.1]
            for cycle in range(4):
                observations += observe(values, cycle_groups(k, rng), worker, cycle, replayed(rng, 0.2))
        return attribute(observations, switches(k))

    moved = run(0.3)
    assert moved.shares[0].between_over_within > 4
    assert [note.split(":")[0] for note in moved.notes] == ["s0"]
    quiet = [run(0.0) for _ in range(60)]
    assert sum(bool(result.notes) for result in quiet) <= 6
    assert np.median([r.shares[0].between_over_within for r in quiet]) == pytest.approx(1, abs=0.3)


@pytest.mark.parametrize(
    ("log_half", "total", "busy", "enough"),
    [
        (0.019, 1.0, False, True),
        (0.021, 1.0, False, False),
        (0.029, math.e, False, True),  # three points of a log slowdown of 1
        (0.031, math.e, False, False),
        (0.039, 1.0, True, True),
        (0.059, math.e**-1.5, True, True),  # four points of 1.5
        (0.061, math.e**-1.5, True, False),
    ],
)
@pytest.mark.parametrize("k", [1, 2])
def test_precise_enough(k, log_half, total, busy, enough):
    rng = np.random.default_rng(0)
    result = attribute(measure(bits(k) @ [0.2, 0.4][:k], k, rng), switches(k))
    low, high = math.exp(-log_half), math.exp(log_half)
    share = dataclasses.replace(result.shares[0], share=Interval(1.0, low, high))
    assert precise_enough(result, busy)
    changed = dataclasses.replace(
        result, total=Interval(total, total, total), shares=(share, *result.shares[1:])
    )
    assert precise_enough(changed, busy) == enough
