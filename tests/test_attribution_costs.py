"""Costs fitted to the mixtures that were run: narrower shares that are still right where the fit is wrong."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from planting import log_shares as shares_of
from planting import measure, observe, replayed, switches

from flashperf.attribution import (
    CostModel,
    MissingCallError,
    attribute,
    cycle_groups,
    estimate_workers,
    shapley,
)

K = 6
#: Seconds of every call; the products exist in eight kinds, of which a mixture makes one: its format and its tile.
CALLS = {"norm": 2e-3, "norm passes": 3e-3, "copy": 4e-3, "mask": 1e-3} | {
    f"product {kind}": 1e-3 * ms
    for kind, ms in zip(itertools.product((0, 1), repeat=3), (6, 9, 15, 11, 2, 2, 5, 5), strict=True)
}


def counts() -> dict[int, dict[str, int]]:
    """Bits 0 to 2 choose the product, 3 splits the norms, 4 streams, 5 rebuilds a mask for each part of a norm."""
    found = {}
    for mask in range(1 << K):
        on = [mask >> bit & 1 for bit in range(K)]
        found[mask] = {
            f"product {(on[2], on[1], on[0])}": 1 + on[3],
            "norm passes" if on[3] else "norm": 1,
            "copy": on[4] * (1 if on[2] else 3),
            "mask": on[5] * (2 if on[3] else 1),
        }
    return found


def log_times(calls: dict[str, float], host_s: float = 2e-3) -> np.ndarray:
    return np.log([host_s + sum(n * calls[c] for c, n in counts()[mask].items()) for mask in range(1 << K)])


def model(off_by: float = 0.0) -> CostModel:
    """Isolated times that differ from those in the pipeline by about this factor, each by its own."""
    rng = np.random.default_rng(3)
    wrong = {call: seconds * math.exp(off_by * rng.standard_normal()) for call, seconds in CALLS.items()}
    return CostModel(counts(), dict.fromkeys(range(8), wrong), K)


def widest(found) -> float:
    return found.widest_half_width_log


def test_costs_that_were_off_are_fitted_to_what_was_run():
    truth = log_times(CALLS)
    observations = measure(truth, K, np.random.default_rng(0), workers=3)
    fitted = model(off_by=0.5).log_times(observations)
    isolated = model(off_by=0.5).log_times(observations[:1])  # one quad says little: near what was isolated
    wrong, right = (np.std(found - truth) for found in (isolated, fitted))
    assert wrong > 0.1
    assert right < 0.025


def test_shares_of_known_costs_are_exact_with_one_cycle():
    truth = log_times(CALLS)
    observations = measure(truth, K, np.random.default_rng(0), workers=8, cycles=1)
    plain = attribute(observations, switches(K))
    assisted = attribute(observations, switches(K), costs=model(off_by=0.3))
    assert shares_of(assisted) == pytest.approx(shapley(truth), abs=0.004)
    assert widest(assisted) < widest(plain) / 4
    assert (assisted.total.low, assisted.total.high) == (plain.total.low, plain.total.high)
    assert math.prod(s.share.value for s in assisted.shares) == pytest.approx(assisted.total.value)


def test_a_wrong_model_costs_width_and_not_truth():
    """An interaction of three switches that no call accounts for, and noise: intervals still cover."""
    truth = log_times(CALLS)
    masks = np.arange(1 << K)
    truth = truth + 0.2 * ((masks & 0b101001) == 0b101001) + np.random.default_rng(1).normal(0, 0.02, 1 << K)
    exact, costs = shapley(truth), model(off_by=0.3)
    rng, held = np.random.default_rng(0), np.zeros(K)
    for _ in range(400):
        found = attribute(
            measure(truth, K, rng, cycles=1, noise=replayed(rng, 0.1)), switches(K), costs=costs
        )
        held += [
            math.log(s.share.low) <= t <= math.log(s.share.high)
            for s, t in zip(found.shares, exact, strict=True)
        ]
    assert 0.92 <= held.mean() / 400 <= 0.98
    assert held.min() / 400 > 0.89


def test_pooled_shares_have_less_bias_than_those_of_each_worker():
    truth, rng, bias = log_times(CALLS), np.random.default_rng(0), np.zeros((2, K))
    for _ in range(60):
        observations = measure(truth, K, rng, workers=8, cycles=1)
        alone = [
            estimate_workers([o for o in observations if o.worker == worker], K).shares[0]
            for worker in range(8)
        ]
        bias[0] += np.mean(alone, axis=0) - shapley(truth)
        bias[1] += estimate_workers(observations, K).shares.mean(axis=0) - shapley(truth)
    assert np.abs(bias[1]).max() < np.abs(bias[0]).max() / 3


def test_a_single_worker_has_no_others_to_fit():
    observations = observe(log_times(CALLS), cycle_groups(K, np.random.default_rng(0)))
    plain, assisted = (estimate_workers(observations, K, costs) for costs in (None, model()))
    assert (plain.shares == assisted.shares).all()


def test_calls_without_a_time_are_refused():
    with pytest.raises(MissingCallError, match="no isolated time for the call 'copy' in worker 2"):
        CostModel(counts(), {2: {c: s for c, s in CALLS.items() if c != "copy"}}, K)
    with pytest.raises(ValueError, match=r"'copy' takes 0.0 s by itself in worker 1"):
        CostModel(counts(), {1: CALLS | {"copy": 0.0}}, K)
    with pytest.raises(ValueError, match="no counts for mixture 100000"):
        CostModel({mask: c for mask, c in counts().items() if mask < 32}, {0: CALLS}, K)


def test_isolated_times_that_are_absurd_do_not_break_the_fit():
    truth = log_times(CALLS)
    wild = {call: seconds * (1e-4 if n % 2 else 1e4) for n, (call, seconds) in enumerate(CALLS.items())}
    observations = measure(truth, K, np.random.default_rng(0), workers=8)
    found = attribute(observations, switches(K), costs=CostModel(counts(), dict.fromkeys(range(8), wild), K))
    assert np.isfinite(shares_of(found)).all()
    assert shares_of(found) == pytest.approx(shapley(truth), abs=0.05)
