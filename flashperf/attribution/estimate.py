"""Shares from the cycles of all workers: pooled least squares, and what each worker contributes to it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np

from flashperf.attribution.costs import CostModel
from flashperf.attribution.cycles import Cycles, usable_cycles
from flashperf.attribution.design import CONFIRM, QUAD, Observation
from flashperf.attribution.least_squares import Moments, contrasts, forward_logs, moments_of, solve
from flashperf.attribution.shapley import shapley, signs
from flashperf.stats import jackknife_standard_error


@dataclass(frozen=True)
class WorkerEstimates:
    """What each worker contributes, all in log units. P workers, k active switches.

    shares (P, k) and total (P,): leave-one-worker-out pseudo-values, whose shares sum to the total in every worker
    alone, on_top (P, k): effect of a switch on none and on all others; nan where its quad is missing
    standard_s (P,): geometric mean of the worker's calls with no switch at flash, in seconds
    within (P, k + 1): jackknife by cycle of the shares and the total; nan for a worker with one cycle
    cycles (P,): cycles used; notes: what was left out and why
    """

    workers: tuple[int, ...]
    shares: np.ndarray
    total: np.ndarray
    alone: np.ndarray
    on_top: np.ndarray
    standard_s: np.ndarray
    within: np.ndarray
    cycles: np.ndarray
    notes: tuple[str, ...] = ()


def estimate_workers(
    observations: Sequence[Observation], k: int, costs: CostModel | None = None
) -> WorkerEstimates:
    """Pooled least squares of the pairs of all workers, split into what each of P workers contributes.

    The pooled estimate has a bias that falls with the number of all pairs; a least squares of each worker alone
    has P times as much. The contribution of a worker is its pseudo-value P x (all) - (P - 1) x (all but it), a
    jackknife over the independent unit (Tukey, 1958). ``costs``: interactions that this model, fitted to the
    calls of the other workers, explains are taken off a worker's differences.

    Raises ValueError if no worker ran enough to determine the shares.
    """
    used, notes = usable_cycles(observations, k)
    basis = contrasts(k)
    moments = {worker: _cycle_moments(worker, used, k, basis, costs) for worker in used}
    good = [worker for worker, cycles in moments.items() if solve(reduce(add, cycles), basis) is not None]
    if not good:
        runs = sum(len(o.seconds) for o in observations if o.group.kind != CONFIRM)
        raise ValueError(
            f"too little was measured to attribute anything to {k} switches: {runs} calls of {len(used)} "
            f"workers, none of which has a quad and {max(1, k - 1)} different pairs"
        )
    if len(good) < len(used):
        lost = ", ".join(str(worker) for worker in used if worker not in good)
        notes = (*notes, f"too little measured by worker {lost}")
    everyone = reduce(add, (cycle for worker in good for cycle in moments[worker]))
    pooled = np.array([_contribution(everyone, moments[worker], len(good), basis) for worker in good])
    quads = [_quads(used[worker], k) for worker in good]
    return WorkerEstimates(
        tuple(good),
        shares=pooled[:, 0, :-1],
        total=pooled[:, 0, -1],
        alone=np.array([alone for alone, _, _ in quads]),
        on_top=np.array([on_top for _, on_top, _ in quads]),
        standard_s=np.array([seconds for _, _, seconds in quads]),
        within=pooled[:, 1],
        cycles=np.array([len(used[worker]) for worker in good]),
        notes=notes,
    )


def _cycle_moments(
    worker: int, used: Cycles, k: int, basis: np.ndarray, costs: CostModel | None
) -> list[Moments]:
    """Moments of each cycle of a worker, less the interactions that costs fitted to all others explain."""
    others = [o for other, cycles in used.items() if other != worker for cycle in cycles for o in cycle]
    known = np.zeros(1 << k)
    if costs is not None and others:
        fitted = costs.log_times(others)
        known = fitted - signs(np.arange(1 << k), k) @ shapley(fitted) / 2
    return [moments_of(cycle, k, basis, known) for cycle in used[worker]]


def _contribution(everyone: Moments, mine: Sequence[Moments], workers: int, basis: np.ndarray) -> np.ndarray:
    """Pseudo-values of one worker's shares and total, and their jackknife by its cycles: shape (2, k + 1)."""
    without = solve(everyone - reduce(add, mine), basis) if workers > 1 else None

    def pseudo_value(moments: Moments) -> np.ndarray | None:
        pooled = solve(moments, basis)
        if pooled is None or without is None:
            return pooled
        return workers * pooled - (workers - 1) * without

    left_out = [pseudo_value(everyone - cycle) for cycle in mine] if len(mine) > 1 else [None]
    within = np.full(basis.shape[0] + 1, np.nan)
    if not any(estimate is None for estimate in left_out):
        within = jackknife_standard_error(np.array(left_out))
    value = pseudo_value(everyone)
    assert value is not None  # every worker's own pairs determine it
    return np.array([value, within])


def _quads(cycles: Sequence[Sequence[Observation]], k: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Effects (k,) of each switch alone and on top of all others, and seconds of Standard, from a worker's quads."""
    quads = [o for cycle in cycles for o in cycle if o.group.kind == QUAD]
    logs = np.array([forward_logs(o) for o in quads])
    switch = np.array([o.group.switch for o in quads])
    number = np.bincount(switch, minlength=k).astype(float)
    number[number == 0] = np.nan
    alone = np.bincount(switch, logs[:, 1] - logs[:, 0], minlength=k) / number
    on_top = np.bincount(switch, logs[:, 3] - logs[:, 2], minlength=k) / number
    return alone, on_top, math.exp(logs[:, 0].mean())


def standard_seconds(observations: Sequence[Observation], k: int) -> dict[int, float]:
    """T(Standard) of each worker in seconds: the geometric mean of its calls with no switch at flash."""
    estimates = estimate_workers(observations, k)
    return dict(zip(estimates.workers, estimates.standard_s.tolist(), strict=True))
