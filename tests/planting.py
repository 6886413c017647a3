"""Known set functions and their observations: what the tests of attribution plant."""

from __future__ import annotations

import numpy as np

from flashperf.attribution import Observation, SwitchLevels, cycle_groups
from flashperf.noise import load_noise

NOISE = load_noise()


def switches(k, active=True):
    return tuple(SwitchLevels(f"s{i}", "off", "on", active) for i in range(k))


def bits(k):
    return (np.arange(1 << k)[:, None] >> np.arange(k)) & 1


def observe(log_times, groups, worker=0, cycle=0, noise=None):
    """Observations of groups run back to back; ``noise`` is a function of the number of calls."""
    calls = [mask for group in groups for mask in group.masks]
    logs = np.asarray(log_times)[calls] + (0 if noise is None else noise(len(calls)))
    seconds = iter((0.03 * np.exp(logs)).tolist())
    return [Observation(worker, cycle, group, tuple(next(seconds) for _ in group.masks)) for group in groups]


def measure(log_times, k, rng, workers=8, cycles=2, noise=None):
    """Whole cycles of several workers."""
    return [
        observation
        for worker in range(workers)
        for cycle in range(cycles)
        for observation in observe(log_times, cycle_groups(k, rng), worker, cycle, noise)
    ]


def replayed(rng, scale=1.0):
    return lambda calls: scale * NOISE.replay(calls, rng)


def log_shares(attribution):
    return np.log([share.share.value for share in attribution.shares])
