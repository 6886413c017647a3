"""Shares of one worker from its cycles: constrained least squares on differences inside groups."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from flashperf.attribution.design import CONFIRM, PAIR, QUAD, Observation, pairs_per_cycle
from flashperf.attribution.shapley import signs
from flashperf.stats import jackknife_standard_error


@dataclass(frozen=True)
class WorkerEstimates:
    """One estimate per worker, all in log units. P workers, k active switches.

    shares (P, k) and total (P,): shares sum to the total in every worker
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


@dataclass
class _Moments:
    """Sums that the least squares needs; those of cycles add up, so a jackknife costs only solves."""

    normal: np.ndarray  # (k - 1, k - 1)
    measured: np.ndarray  # (k - 1,)
    constrained: np.ndarray  # (k - 1,)
    ends: float  # sum of log T(all) - log T(none)
    count: int  # and their number

    def __sub__(self, other: _Moments) -> _Moments:
        return _Moments(*(a - b for a, b in zip(self.parts(), other.parts(), strict=True)))

    def parts(self) -> tuple:
        return (self.normal, self.measured, self.constrained, self.ends, self.count)


def contrasts(k: int) -> np.ndarray:
    """Orthonormal basis, shape (k, k - 1), of the share vectors that sum to zero (Helmert contrasts)."""
    basis = np.zeros((k, k - 1))
    for n in range(1, k):
        basis[:n, n - 1], basis[n, n - 1] = 1.0, -float(n)
        basis[:, n - 1] /= math.sqrt(n * (n + 1))
    return basis


def _forward_logs(observation: Observation) -> np.ndarray:
    """Log times of a quad in the order none, i, all but i, all, however it was run."""
    logs = np.log(observation.seconds)
    return logs if observation.group.masks[0] == 0 else logs[::-1]


def _moments(observations: Iterable[Observation], k: int, basis: np.ndarray) -> _Moments:
    """Sums over the quads and pairs of one cycle (or more)."""
    masks: list[int] = []
    z: list[float] = []
    weights: list[float] = []
    ends: list[float] = []
    everything = (1 << k) - 1
    for observation in observations:
        group = observation.group
        if group.kind == QUAD:
            none, alone, rest, full = _forward_logs(observation)
            ends.append(full - none)
            mask, difference = 1 << group.switch, alone - rest
        else:
            mask, difference = group.masks[0], math.log(observation.seconds[0] / observation.seconds[1])
        if mask == everything:  # one switch: its own half of a quad is a second pair of ends
            ends.append(difference)
        else:
            masks.append(mask)
            z.append(difference)
            weights.append(group.weight)
    x = signs(np.array(masks, dtype=np.int64), k)
    reduced = x @ basis
    weighted = reduced.T * np.array(weights)
    return _Moments(
        weighted @ reduced, weighted @ np.array(z), weighted @ x.sum(axis=1), sum(ends), len(ends)
    )


def _solve(moments: _Moments, basis: np.ndarray) -> np.ndarray | None:
    """Shares and the total, shape (k + 1,); None if the moments do not determine them.

    Least squares of z on x under sum(shares) = mean of the ends: shares = total / k + basis @ free.
    """
    k = basis.shape[0]
    if moments.count == 0 or np.linalg.matrix_rank(moments.normal, hermitian=True) < k - 1:
        return None
    total = moments.ends / moments.count
    free = np.linalg.solve(moments.normal, moments.measured - moments.constrained * total / k)
    return np.append(total / k + basis @ free, total)


def _jackknife(whole: _Moments, cycles: Sequence[_Moments], basis: np.ndarray) -> np.ndarray:
    """Standard errors of shares and total from leaving out one cycle at a time; nan if they can't be had."""
    left_out = [_solve(whole - cycle, basis) for cycle in cycles] if len(cycles) > 1 else [None]
    if any(estimate is None for estimate in left_out):
        return np.full(basis.shape[0] + 1, np.nan)
    return jackknife_standard_error(np.array(left_out))


def _one_worker(cycles: Sequence[Sequence[Observation]], k: int, basis: np.ndarray) -> dict | None:
    """All estimates of one worker; None if it ran too little to determine them."""
    moments = [_moments(cycle, k, basis) for cycle in cycles]
    whole = _Moments(*(sum(parts) for parts in zip(*(each.parts() for each in moments), strict=True)))
    solution = _solve(whole, basis)
    if solution is None:
        return None
    quads = [o for cycle in cycles for o in cycle if o.group.kind == QUAD]
    logs = np.array([_forward_logs(o) for o in quads])
    switch = np.array([o.group.switch for o in quads])
    number = np.bincount(switch, minlength=k).astype(float)
    number[number == 0] = np.nan
    return {
        "shares": solution[:-1],
        "total": solution[-1],
        "alone": np.bincount(switch, logs[:, 1] - logs[:, 0], minlength=k) / number,
        "on_top": np.bincount(switch, logs[:, 3] - logs[:, 2], minlength=k) / number,
        "standard_s": math.exp(logs[:, 0].mean()),
        "within": _jackknife(whole, moments, basis),
        "cycles": len(cycles),
    }


def _is_whole(cycle: Sequence[Observation], k: int, pairs: int) -> bool:
    """Whether every quad and all complement pairs of a cycle were measured."""
    quads = {o.group.switch for o in cycle if o.group.kind == QUAD}
    return len(quads) == k and sum(o.group.kind == PAIR for o in cycle) >= pairs


def usable_cycles(
    observations: Sequence[Observation], k: int, pairs: int | None = None
) -> tuple[dict[int, list[list[Observation]]], tuple[str, ...]]:
    """The cycles of each worker that count, in run order, and notes on those that do not.

    Only whole cycles count; if no worker has one, all that was measured does. ``pairs`` is the number of
    complement pairs in a whole cycle (default ``pairs_per_cycle(k)``).
    """
    needed = pairs_per_cycle(k) if pairs is None else pairs
    found: dict[int, dict[int, list[Observation]]] = defaultdict(lambda: defaultdict(list))
    for observation in observations:
        if observation.group.kind != CONFIRM:
            if any(mask >> k for mask in observation.group.masks):
                raise ValueError(
                    f"mixture {max(observation.group.masks):b} has a switch beyond the {k} active ones"
                )
            found[observation.worker][observation.cycle].append(observation)
    whole = {
        worker: [cycle for _, cycle in sorted(cycles.items()) if _is_whole(cycle, k, needed)]
        for worker, cycles in sorted(found.items())
    }
    if not any(whole.values()):
        return {w: [c for _, c in sorted(cycles.items())] for w, cycles in sorted(found.items())}, (
            ("no worker finished a cycle; this rests on unfinished ones",) if found else ()
        )
    return {w: cycles for w, cycles in whole.items() if cycles}, _left_out(found, whole)


def _left_out(found: Mapping[int, Mapping], whole: Mapping[int, Sequence]) -> tuple[str, ...]:
    without = [str(worker) for worker, cycles in whole.items() if not cycles]
    unfinished = sum(len(found[worker]) - len(cycles) for worker, cycles in whole.items())
    notes = []
    if unfinished:
        notes.append(f"{unfinished} unfinished cycle{'s' * (unfinished > 1)} left out")
    if without:
        notes.append(f"no whole cycle from worker {', '.join(without)}")
    return tuple(notes)


def estimate_workers(
    observations: Sequence[Observation], k: int, pairs: int | None = None
) -> WorkerEstimates:
    """Constrained least squares of each worker by itself; see ``WorkerEstimates``.

    Raises ValueError if no worker ran enough to determine the shares.
    """
    used, notes = usable_cycles(observations, k, pairs)
    basis = contrasts(k)
    estimates = {worker: _one_worker(cycles, k, basis) for worker, cycles in used.items()}
    good = {worker: estimate for worker, estimate in estimates.items() if estimate is not None}
    if not good:
        runs = sum(len(o.seconds) for o in observations if o.group.kind != CONFIRM)
        raise ValueError(
            f"too little was measured to attribute anything to {k} switches: {runs} calls of {len(used)} "
            f"workers, none of which has a quad and {max(1, k - 1)} different pairs"
        )
    if len(good) < len(estimates):
        lost = ", ".join(str(worker) for worker, estimate in estimates.items() if estimate is None)
        notes = (*notes, f"too little measured by worker {lost}")
    stacked = {name: np.array([e[name] for e in good.values()]) for name in next(iter(good.values()))}
    return WorkerEstimates(tuple(good), **stacked, notes=notes)


def standard_seconds(
    observations: Sequence[Observation], k: int, pairs: int | None = None
) -> dict[int, float]:
    """T(Standard) of each worker in seconds: the geometric mean of its calls with no switch at flash."""
    estimates = estimate_workers(observations, k, pairs)
    return dict(zip(estimates.workers, estimates.standard_s.tolist(), strict=True))
