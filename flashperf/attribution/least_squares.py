"""The constrained least squares of complement pairs, from sums that add up over cycles and workers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from flashperf.attribution.design import QUAD, Observation
from flashperf.attribution.shapley import signs


@dataclass
class Moments:
    """Sums that the least squares needs: those of a cycle less or more are a subtraction or an addition."""

    normal: np.ndarray  # (k - 1, k - 1)
    measured: np.ndarray  # (k - 1,)
    constrained: np.ndarray  # (k - 1,)
    ends: float  # sum of log T(all) - log T(none)
    count: int  # and their number

    def __add__(self, other: Moments) -> Moments:
        return Moments(*(a + b for a, b in zip(self._parts(), other._parts(), strict=True)))

    def __sub__(self, other: Moments) -> Moments:
        return Moments(*(a - b for a, b in zip(self._parts(), other._parts(), strict=True)))

    def _parts(self) -> tuple:
        return (self.normal, self.measured, self.constrained, self.ends, self.count)


def contrasts(k: int) -> np.ndarray:
    """Orthonormal basis, shape (k, k - 1), of the share vectors that sum to zero (Helmert contrasts)."""
    basis = np.zeros((k, k - 1))
    for n in range(1, k):
        basis[:n, n - 1], basis[n, n - 1] = 1.0, -float(n)
        basis[:, n - 1] /= math.sqrt(n * (n + 1))
    return basis


def forward_logs(observation: Observation) -> np.ndarray:
    """Log times of a quad in the order none, i, all but i, all, however it was run."""
    logs = np.log(observation.seconds)
    return logs if observation.group.masks[0] == 0 else logs[::-1]


def moments_of(observations: Iterable[Observation], k: int, basis: np.ndarray, known: np.ndarray) -> Moments:
    """Sums over the quads and pairs of a cycle.

    ``known``, shape (2**k,): log times without shares (all of its Shapley values are 0), taken off beforehand.
    """
    masks: list[int] = []
    z: list[float] = []
    weights: list[float] = []
    ends: list[float] = []
    everything = (1 << k) - 1
    for observation in observations:
        group = observation.group
        if group.kind == QUAD:
            none, alone, rest, full = forward_logs(observation)
            ends.append(full - none)
            mask, difference = 1 << group.switch, alone - rest
        else:
            mask, difference = group.masks[0], math.log(observation.seconds[0] / observation.seconds[1])
        if mask == everything:  # one switch: its own half of a quad is a second pair of ends
            ends.append(difference)
        else:
            masks.append(mask)
            z.append(difference - (known[mask] - known[everything ^ mask]))
            weights.append(group.weight)
    x = signs(np.array(masks, dtype=np.int64), k)
    reduced = x @ basis
    weighted = reduced.T * np.array(weights)
    return Moments(weighted @ reduced, weighted @ np.array(z), weighted @ x.sum(axis=1), sum(ends), len(ends))


def solve(moments: Moments, basis: np.ndarray) -> np.ndarray | None:
    """Shares and the total, shape (k + 1,); None if the moments do not determine them.

    Least squares of z on x under sum(shares) = mean of the ends: shares = total / k + basis @ free.
    """
    k = basis.shape[0]
    if moments.count == 0 or np.linalg.matrix_rank(moments.normal, hermitian=True) < k - 1:
        return None
    total = moments.ends / moments.count
    free = np.linalg.solve(moments.normal, moments.measured - moments.constrained * total / k)
    return np.append(total / k + basis @ free, total)
