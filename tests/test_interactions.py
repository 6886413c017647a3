"""Interactions: screened on the data at hand, reported from fresh blocks alone."""

from __future__ import annotations

import math

import numpy as np
import pytest
from planting import bits, measure, observe, replayed, switches

from flashperf.attribution import (
    attribute,
    confirmation_block,
    confirmation_groups,
    screen_interactions,
)
from flashperf.attribution.design import block_pair
from flashperf.attribution.interactions import _fit


def interacting(k=5, size=0.2):
    return bits(k) @ np.full(k, 0.1) + size * bits(k)[:, 1] * bits(k)[:, 3]


def confirm(values, k, pairs, rng, workers=8, rounds=2, noise=None):
    return [
        o
        for worker in range(workers)
        for cycle in range(rounds)
        for o in observe(values, confirmation_groups(pairs, k, worker, rng), worker, cycle, noise)
    ]


def test_a_confirmation_block_is_a_palindrome_and_cancels_linear_drift():
    rng = np.random.default_rng(0)
    firsts = set()
    for background in (0, 0b10101):
        for _ in range(20):
            block = confirmation_block(3, 1, 5, background, rng)
            assert block.masks == block.masks[::-1]
            assert block_pair(block) == (1, 3, background)
            firsts.add(block.masks[1] ^ background)
    assert firsts == {0b10, 0b1000}
    values, drift = interacting(), lambda calls: 0.05 * np.arange(calls)
    observations = [
        o for w in range(6) for o in observe(values, [confirmation_block(1, 3, 5, 0, rng)], w, noise=drift)
    ]
    cycles = measure(values, 5, rng, workers=6)
    (found,) = attribute([*cycles, *observations], switches(5)).interactions
    assert math.log(found.ratio_on_standard.value) == pytest.approx(0.2)
    for i, j, background in [(1, 1, 0), (1, 5, 0), (1, 3, 0b10), (1, 3, 1 << 5)]:
        with pytest.raises(ValueError, match="2x2"):
            confirmation_block(i, j, 5, background, rng)


def test_workers_alternate_the_background_they_begin_with():
    pairs, rng = [(0, 1), (2, 3)], np.random.default_rng(0)
    starts = [
        [block_pair(g)[2] != 0 for g in confirmation_groups(pairs, 5, worker, rng)] for worker in range(2)
    ]
    assert starts == [[False, False, True, True], [True, True, False, False]]
    assert len(confirmation_groups([(0, 1)], 2, 1, rng)) == 1


def test_screening_ranks_the_planted_pair_first_through_drift():
    rng = np.random.default_rng(0)
    for scale in (0.0, 0.5):
        observations = measure(interacting(), 5, rng, noise=replayed(rng, scale))
        candidates = screen_interactions(observations, 5)
        assert len(candidates) == 3
        assert candidates[0].switches == (1, 3)
        assert candidates[0].log_effect == pytest.approx(0.2, abs=0.05)
    drifting = measure(interacting(), 5, rng, noise=lambda calls: 0.02 * np.arange(calls) * np.ones(calls))
    assert screen_interactions(drifting, 5)[0].switches == (1, 3)
    assert screen_interactions(measure(np.zeros(2), 1, rng), 1) == []
    assert screen_interactions([], 3) == []


def test_screening_separates_overlapping_pairs_where_data_allow():
    k, rng = 4, np.random.default_rng(0)
    x = bits(k)
    values = 0.3 * x[:, 0] * x[:, 1] + 0.2 * x[:, 1] * x[:, 2]
    found = screen_interactions(measure(values, k, rng, workers=2), k)
    assert [candidate.switches for candidate in found[:2]] == [(0, 1), (1, 2)]
    assert [candidate.log_effect for candidate in found] == pytest.approx([0.3, 0.2, 0.0], abs=1e-9)


def test_screening_with_as_many_unknowns_as_data_still_ranks():
    effect, t = _fit(np.eye(4), np.array([0.1, -0.4, 0.2, 0.3]))
    assert np.isfinite(t).all()
    assert effect == pytest.approx([0.1, -0.4, 0.2, 0.3])
    assert np.argmax(np.abs(t)) == 1


def test_screening_with_few_data_fits_each_pair_alone():
    k, rng = 10, np.random.default_rng(0)
    values = 0.5 * bits(k)[:, 2] * bits(k)[:, 7]
    observations = measure(values, k, rng, workers=1, cycles=1)
    assert (2, 7) in [candidate.switches for candidate in screen_interactions(observations, k)]


def test_only_fresh_blocks_are_reported_and_confirmed():
    k, rng = 5, np.random.default_rng(0)
    shared = measure(interacting(size=0.9), k, rng)  # what screening saw; must not enter the result
    blocks = confirm(interacting(size=0.2), k, [(1, 3), (0, 2)], rng, noise=replayed(rng, 0.1))
    result = attribute([*shared, *blocks], switches(k))
    found, other = result.interactions
    assert (found.switches, found.confirmed, other.switches, other.confirmed) == (
        ("s1", "s3"), True, ("s0", "s2"), False,
    )  # fmt: skip
    for ratio in (found.ratio, found.ratio_on_standard, found.ratio_on_flash):
        assert math.log(ratio.value) == pytest.approx(0.2, abs=0.03)
        assert ratio.confidence == pytest.approx(1 - 0.05 / 3)
    assert attribute(shared, switches(k)).interactions == ()


def test_none_found_says_above_what():
    k, rng = 5, np.random.default_rng(0)
    values = bits(k) @ np.full(k, 0.1)
    blocks = confirm(values, k, [(0, 1), (1, 3), (2, 4)], rng, noise=replayed(rng, 0.2))
    result = attribute([*measure(values, k, rng), *blocks], switches(k))
    assert not any(interaction.confirmed for interaction in result.interactions)
    limit = result.smallest_detectable_interaction
    assert 1.005 < limit < 1.2
    assert result.notes == ()


def test_the_detectable_size_is_detected_four_times_in_five_and_nothing_rarely():
    k, rng, found, false, limits = 3, np.random.default_rng(0), 0, 0, []
    for size in (0.0, 0.03):
        for _ in range(300):
            noise = lambda calls: rng.normal(0, 0.03, calls)  # noqa: E731
            blocks = confirm(size * bits(k)[:, 0] * bits(k)[:, 1], k, [(0, 1)], rng, noise=noise)
            result = attribute([*measure(np.zeros(8), k, rng, workers=2, cycles=1), *blocks], switches(k))
            confirmed = result.interactions[0].confirmed
            found, false = found + (confirmed and size > 0), false + (confirmed and size == 0)
            limits.append(math.log(result.smallest_detectable_interaction))
    assert np.median(limits) == pytest.approx(0.03, abs=0.003)
    assert 0.7 <= found / 300 <= 0.9
    assert false / 300 <= 0.04


def test_confirmation_with_one_background_or_one_worker():
    k, rng = 4, np.random.default_rng(0)
    values = bits(k) @ np.full(k, 0.1) + 0.2 * bits(k)[:, 0] * bits(k)[:, 1]
    cycles = measure(values, k, rng)
    block = confirmation_block(0, 1, k, 0, rng)
    one = attribute([*cycles, *observe(values, [block])], switches(k))
    (found,) = one.interactions
    assert not found.confirmed
    assert math.isnan(found.ratio_on_flash.value)
    assert one.smallest_detectable_interaction is None
    two = bits(2) @ [0.1, 0.1] + 0.2 * bits(2)[:, 0] * bits(2)[:, 1]
    blocks = confirm(two, 2, [(0, 1)], rng)
    (only,) = attribute([*measure(two, 2, rng), *blocks], switches(2)).interactions
    assert only.confirmed
    assert only.ratio_on_flash == only.ratio_on_standard
