"""What a cycle runs, in which proportions and orders."""

from __future__ import annotations

import math

import numpy as np
import pytest

from flashperf.attribution import (
    Group,
    Observation,
    cycle_groups,
    pairs_per_cycle,
    runs_per_cycle,
)


@pytest.mark.parametrize(
    ("k", "pairs", "runs"), [(1, 0, 4), (2, 0, 8), (3, 0, 12), (8, 10, 52), (18, 40, 152)]
)
def test_a_cycle_has_a_quad_per_switch_and_enough_complement_pairs(k, pairs, runs):
    groups = cycle_groups(k, np.random.default_rng(k))
    everything = (1 << k) - 1
    assert (pairs_per_cycle(k), runs_per_cycle(k)) == (pairs, runs)
    assert sum(len(group.masks) for group in groups) == runs
    quads = [group for group in groups if group.kind == "quad"]
    assert sorted(group.switch for group in quads) == list(range(k))
    for group in quads:
        forwards = (0, 1 << group.switch, everything ^ (1 << group.switch), everything)
        assert group.masks in (forwards, forwards[::-1])
    for group in groups:
        if group.kind == "pair":
            assert group.masks[0] ^ group.masks[1] == everything
            assert 2 <= group.masks[0].bit_count() <= k - 2


def test_sizes_follow_the_kernel_and_orders_are_random():
    k, rng = 8, np.random.default_rng(0)
    groups = [group for _ in range(300) for group in cycle_groups(k, rng)]
    pairs = [group for group in groups if group.kind == "pair"]
    sizes = np.bincount([min(m.bit_count() for m in group.masks) for group in pairs])[2:]
    kernel = np.array([2 / 12, 2 / 15, 1 / 16])
    assert sizes / sizes.sum() == pytest.approx(kernel / kernel.sum(), abs=0.01)
    assert np.mean([group.masks[0] == 0 for group in groups if group.kind == "quad"]) == pytest.approx(
        0.5, abs=0.05
    )
    membership = np.mean([[group.masks[0] >> i & 1 for i in range(k)] for group in pairs], axis=0)
    assert membership == pytest.approx(np.full(k, 0.5), abs=0.05)
    position = [groups[n].kind == "quad" for n in range(0, len(groups), 18)]  # the first group of every cycle
    assert np.mean(position) == pytest.approx(8 / 18, abs=0.1)
    first = cycle_groups(k, np.random.default_rng(1)), cycle_groups(k, np.random.default_rng(1))
    assert first[0] == first[1] != cycle_groups(k, np.random.default_rng(2))


def test_another_number_of_pairs_is_made_up_by_weight():
    pairs = [group for group in cycle_groups(8, np.random.default_rng(0), pairs=29) if group.kind == "pair"]
    assert len(pairs) == 29
    assert sum(group.weight for group in pairs) == pytest.approx(10.15)
    with pytest.raises(ValueError, match="complement pair"):
        cycle_groups(8, np.random.default_rng(0), pairs=0)
    with pytest.raises(ValueError, match="at least one active"):
        cycle_groups(0, np.random.default_rng(0))


def test_observations_need_a_positive_time_per_mixture():
    group = Group("pair", -1, (1, 6))
    for seconds in [(1.0,), (1.0, 0.0), (1.0, math.nan), (1.0, math.inf)]:
        with pytest.raises(ValueError, match="times"):
            Observation(0, 0, group, seconds)
