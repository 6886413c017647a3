"""The prediction from isolated kernels: exact for times that add up; what it can't see stays unexplained."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from planting import bits, log_shares, replayed, switches

from flashperf.attribution import (
    MissingCallError,
    Observation,
    attribute,
    cycle_groups,
    predict,
    shapley,
    standard_seconds,
)

# seconds of one isolated call
CALLS = {"gemm": 1e-4, "gemm_bf16": 6e-5, "gemm_chunk": 4e-5, "cast": 1e-5, "mask": 3e-3, "save": 2e-3}
HOST_S = 4e-3


def counts_of(mask, k):
    """Calls of a mixture: bf16 (0), chunked products (1), masks built on the host (2), saved state (3)."""
    bf16, chunked, masks, saves = (mask >> i & 1 if i < k else 0 for i in range(4))
    counts = {"gemm": 120}
    if bf16:
        counts = {"gemm_bf16": 120, "cast": 240}
    if chunked:
        counts = {**counts, "gemm_chunk": 300}
    return {**counts, "mask": masks, "save": 3 * saves}


def additive_times(k, call_s=CALLS):
    """T(S) of every mixture, shape (2**k,): host plus the sum of its calls."""
    return np.array(
        [HOST_S + sum(n * call_s[call] for call, n in counts_of(mask, k).items()) for mask in range(1 << k)]
    )


def counts(k):
    return {mask: counts_of(mask, k) for mask in range(1 << k)}


class Clock:
    """Moves only when a call is made."""

    def __init__(self):
        self.now = 0.0

    def timed(self, calls, host=0.0):
        start = self.now
        self.now += host
        for call, number in calls.items():
            for _ in range(number):
                self.now += CALLS[call]
        return self.now - start


def exact(times, k, isolated=CALLS):
    """unexplained of every switch from exact shares of ``times`` (2**k,), in log units."""
    prediction = predict(counts(k), {0: isolated}, {0: float(times[0])}, k)
    return shapley(np.log(times)) - prediction.shares[0]


def test_a_scripted_clock_and_an_additive_pipeline_leave_nothing_unexplained():
    k, rng, clock = 3, np.random.default_rng(0), Clock()
    observations = [
        Observation(
            worker, cycle, group, tuple(clock.timed(counts_of(mask, k), host=HOST_S) for mask in group.masks)
        )
        for worker in range(8)
        for cycle in range(2)
        for group in cycle_groups(k, rng)
    ]
    isolated = {worker: {call: clock.timed({call: 1}) for call in CALLS} for worker in range(8)}
    prediction = predict(counts(k), isolated, standard_seconds(observations, k), k)
    assert prediction.host_s.value == pytest.approx(HOST_S)
    result = attribute(observations, switches(k), prediction=prediction)
    for share in result.shares:
        assert share.unexplained.value == pytest.approx(1.0, abs=1e-9)
        assert share.predicted.value == pytest.approx(share.share.value)
    assert result.sum_unexplained_log == pytest.approx(0.0, abs=1e-9)
    assert abs(math.log(result.total.value)) > 0.1


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_exact_shares_of_an_additive_pipeline_are_predicted_to_rounding(k):
    assert exact(additive_times(k), k) == pytest.approx(np.zeros(k), abs=1e-12)


def test_isolated_difference_times_calls_would_not_add_up():
    times = additive_times(4)
    naive = sum(math.log(times[1 << i] / times[0]) for i in range(4))
    assert abs(naive - math.log(times[-1] / times[0])) > 0.05


def test_with_noise_the_interval_of_unexplained_covers_zero():
    k, rng, held = 3, np.random.default_rng(0), np.zeros(3)
    log_times = np.log(additive_times(k))
    for _ in range(400):
        noise = replayed(rng, 0.5)
        observations, isolated = [], {}
        for worker in range(8):
            placed = {call: seconds * math.exp(rng.normal(0, 0.02)) for call, seconds in CALLS.items()}
            own = log_times - np.log(additive_times(k)) + np.log(additive_times(k, placed))
            for cycle in range(2):
                for group in cycle_groups(k, rng):
                    seconds = np.exp(own[list(group.masks)] + noise(len(group.masks)))
                    observations.append(Observation(worker, cycle, group, tuple(seconds.tolist())))
            isolated[worker] = {call: s * math.exp(noise(30).mean()) for call, s in placed.items()}
        prediction = predict(counts(k), isolated, standard_seconds(observations, k), k)
        result = attribute(observations, switches(k), prediction=prediction)
        held += [share.unexplained.low <= 1 <= share.unexplained.high for share in result.shares]
    assert ((held / 400 >= 0.92) & (held / 400 <= 0.98)).all(), held / 400


def test_an_unrecorded_host_cost_appears_in_its_switch_alone_in_size():
    k, times = 4, additive_times(4)
    factor = times * np.where(bits(k)[:, 2] == 1, 1.1, 1.0)
    assert exact(factor, k) == pytest.approx([0, 0, math.log(1.1), 0], abs=1e-12)
    cost = 3e-3
    unexplained = exact(times + cost * bits(k)[:, 2], k)
    assert math.log(1 + cost / times.max()) < unexplained[2] < math.log(1 + cost / times.min())
    # seconds are a smaller fraction where others are slow too: a fixed cost leaks a little into their logs
    assert np.abs(np.delete(unexplained, 2)).max() < 0.25 * unexplained[2]


def test_contention_of_two_switches_appears_in_those_two_alone():
    k, x = 4, bits(4)
    unexplained = exact(additive_times(k) * np.where(x[:, 0] * x[:, 3] == 1, 1.2, 1.0), k)
    half = math.log(1.2) / 2
    assert unexplained == pytest.approx([half, 0, 0, half], abs=1e-12)


def test_a_missing_call_is_named():
    isolated = {call: seconds for call, seconds in CALLS.items() if call != "cast"}
    with pytest.raises(MissingCallError, match="'cast' in worker 3") as caught:
        predict(counts(2), {3: isolated}, {3: 0.02}, 2)
    assert caught.value.call == "cast"
    assert isinstance(caught.value, ValueError)
    unused = {**CALLS}
    del unused["save"]  # counted zero times with two switches
    assert predict(counts(2), {3: unused}, {3: 0.02}, 2).shares.shape == (1, 2)


def test_a_missing_mixture_or_worker_or_an_impossible_time_is_an_error():
    with pytest.raises(ValueError, match="no counts for mixture 10"):
        predict({0: {}, 1: {}, 3: {}}, {0: CALLS}, {0: 0.02}, 2)
    with pytest.raises(ValueError, match=r"workers \[0\] but Standard of \[1\]"):
        predict(counts(2), {0: CALLS}, {1: 0.02}, 2)
    with pytest.raises(ValueError, match="its calls do not fit"):
        predict({0: {"gemm": 100}, 1: {}}, {0: CALLS}, {0: 0.005}, 1)


def test_a_host_remainder_below_zero_is_said_to_be_a_model_error():
    k, rng = 2, np.random.default_rng(0)
    log_times = np.log(additive_times(k))
    observations = [
        Observation(w, 0, group, tuple(np.exp(log_times[list(group.masks)]).tolist()))
        for w in range(8)
        for group in cycle_groups(k, rng)
    ]
    standard = standard_seconds(observations, k)
    slow = {w: {call: 2 * s * (1 + 0.01 * rng.normal()) for call, s in CALLS.items()} for w in range(8)}
    warm, cold = (predict(counts(k), times, standard, k) for times in (dict.fromkeys(range(8), CALLS), slow))
    assert warm.model_error == ""
    assert cold.host_s.high < 0
    result = attribute(observations, switches(k), prediction=warm, prediction_cold=cold)
    assert [note.split(":")[0] for note in result.notes] == ["model error of the prediction (cold cache)"]
    assert result.shares[1].predicted_cold.value > result.shares[1].predicted.value
    assert warm.kernel_fraction == pytest.approx(0.012 / 0.016)


def test_predicted_times_unexplained_is_the_total_and_inactive_switches_take_no_part():
    k, rng = 3, np.random.default_rng(0)
    log_times = np.log(additive_times(k)) + 0.1 * bits(k)[:, 1]
    observations = []
    for worker in range(6):
        for group in cycle_groups(k, rng):
            logs = log_times[list(group.masks)] + replayed(rng, 0.3)(len(group.masks))
            observations.append(Observation(worker, 0, group, tuple(np.exp(logs).tolist())))
    prediction = predict(counts(k), dict.fromkeys(range(6), CALLS), standard_seconds(observations, k), k)
    names = (*switches(k), dataclasses.replace(switches(1)[0], name="idle", active=False))
    result = attribute(observations, names, prediction=prediction)
    assert (result.shares[-1].predicted.value, result.shares[-1].unexplained.value) == (1.0, 1.0)
    parts = math.prod(share.predicted.value * share.unexplained.value for share in result.shares)
    assert parts == pytest.approx(result.total.value, rel=1e-12)
    unexplained = [math.log(share.unexplained.value) for share in result.shares]
    assert result.sum_unexplained_log == pytest.approx(np.abs(unexplained).sum())
    assert log_shares(result).sum() == pytest.approx(math.log(result.total.value))
    fewer = predict(counts(k), {0: CALLS}, {0: 0.02}, k)
    with pytest.raises(ValueError, match="no isolated times from worker 1, 2, 3, 4, 5"):
        attribute(observations, names, prediction=fewer)
