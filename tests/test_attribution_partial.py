"""Short and broken data: what still counts, what is said, what is an error."""

from __future__ import annotations

import math

import numpy as np
import pytest
from planting import bits, log_shares, measure, observe, replayed, switches

from flashperf.attribution import (
    attribute,
    cycle_groups,
    precise_enough,
    standard_seconds,
)


def test_only_whole_cycles_count_unless_there_is_none():
    k, rng = 5, np.random.default_rng(0)
    whole = measure(bits(k) @ np.full(k, 0.1), k, rng, workers=6, cycles=2)
    wrong = observe(bits(k) @ np.full(k, 0.7), cycle_groups(k, rng)[:-1], worker=0, cycle=2)
    lone = observe(bits(k) @ np.full(k, 0.7), cycle_groups(k, rng)[:-1], worker=9, cycle=0)
    result = attribute([*whole, *wrong, *lone], switches(k))
    assert log_shares(result) == pytest.approx(np.full(k, 0.1))
    assert result.workers == 6
    assert result.notes == ("2 unfinished cycles left out", "no whole cycle from worker 9")
    partial = attribute([*wrong, *lone], switches(k))
    assert log_shares(partial) == pytest.approx(np.full(k, 0.7))
    assert "no worker finished a cycle" in partial.notes[0]
    assert partial.workers == 2


def test_few_workers_are_noted_and_one_has_no_interval():
    k, rng = 2, np.random.default_rng(0)
    values = bits(k) @ [0.2, 0.4]
    assert "at least 6" in attribute(measure(values, k, rng, workers=5), switches(k)).notes[0]
    assert attribute(measure(values, k, rng, workers=6), switches(k)).notes == ()
    alone = attribute(measure(values, k, rng, workers=1), switches(k))
    assert alone.notes == ("one worker: there is no interval",)
    assert (alone.total.low, alone.total.high) == (0.0, math.inf)
    assert alone.widest_half_width_log == math.inf
    assert not precise_enough(alone, busy=True)


def test_a_missing_quad_leaves_alone_and_on_top_unknown():
    k, rng = 4, np.random.default_rng(0)
    groups = [g for g in cycle_groups(k, rng, pairs=9) if g.switch != 2]
    share = attribute(observe(bits(k) @ [0.1, 0.2, 0.3, 0.4], groups), switches(k)).shares[2]
    assert math.isnan(share.alone.value)
    assert math.isnan(share.on_top.value)
    assert math.log(share.share.value) == pytest.approx(0.3)


def test_nothing_to_estimate_is_a_clear_error():
    k, rng = 5, np.random.default_rng(0)
    groups = cycle_groups(k, rng)
    quads = [g for g in groups if g.kind == "quad"]
    with pytest.raises(
        ValueError, match="too little was measured to attribute anything to 5 switches: 0 calls"
    ):
        attribute([], switches(k))
    with pytest.raises(ValueError, match="12 calls of 1 workers"):
        attribute(observe(np.zeros(32), quads[:3]), switches(k))
    with pytest.raises(ValueError, match="beyond the 4 active ones"):
        attribute(observe(np.zeros(32), groups), switches(4))
    good, bad = observe(np.zeros(32), groups[:-1], worker=0), observe(np.zeros(32), quads[:1], worker=7)
    assert "too little measured by worker 7" in attribute([*good, *bad], switches(k)).notes[1]


def test_standard_seconds_is_the_geometric_mean_of_calls_without_flash():
    rng = np.random.default_rng(0)
    observations = measure(bits(2) @ [0.2, 0.4], 2, rng, workers=2, noise=replayed(rng))
    for worker, seconds in standard_seconds(observations, 2).items():
        calls = [
            s
            for o in observations
            if o.worker == worker
            for m, s in zip(o.group.masks, o.seconds, strict=True)
            if m == 0
        ]
        assert seconds == pytest.approx(math.exp(np.mean(np.log(calls))))


def test_counts_and_reasons_are_passed_through():
    observations = measure(bits(2) @ [0.2, 0.4], 2, np.random.default_rng(0), workers=6, cycles=1)
    result = attribute(observations, switches(2), repeated=3, seconds=1.5, stopped="interrupted")
    assert (result.runs, result.repeated, result.seconds, result.stopped) == (48, 3, 1.5, "interrupted")
