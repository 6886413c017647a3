"""Pairs of switches whose joint effect is not the product of their own: screened, then confirmed afresh.

The effect of a pair is log T(ij) - log T(i) - log T(j) + log T(none) on a background of other switches.
Screening picks candidates from the data at hand; being the largest of many, their screened sizes are inflated
and are never reported. Only fresh blocks of the candidates are.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flashperf.attribution.cycles import usable_cycles
from flashperf.attribution.design import CONFIRM, QUAD, Observation, SwitchLevels, block_pair
from flashperf.attribution.shapley import signs
from flashperf.records import Interaction, Interval
from flashperf.stats import exp_interval, mean_of, t_quantile

KEEP = 3
CONFIDENCE = 1 - 0.05 / KEEP
POWER = 0.8


@dataclass(frozen=True)
class Candidate:
    """A screened pair of active switches: rough size in log units and |t| to rank by; both inflated."""

    switches: tuple[int, int]
    log_effect: float
    t: float


def _pair_means(cycle: Sequence[Observation]) -> tuple[list[int], list[float]]:
    """A mask and the mean log time of it and its complement, for every complement pair in run order."""
    masks: list[int] = []
    means: list[float] = []
    for observation in cycle:
        logs = np.log(observation.seconds)
        if observation.group.kind == QUAD:
            masks += [0, 1 << observation.group.switch]
            means += [(logs[0] + logs[3]) / 2, (logs[1] + logs[2]) / 2]
        else:
            masks.append(observation.group.masks[0])
            means.append(logs.mean())
    return masks, means


def screen_interactions(observations: Sequence[Observation], k: int, keep: int = KEEP) -> list[Candidate]:
    """The ``keep`` pairs with the largest |t| in a least squares of pair means on the products x_i x_j.

    The mean of S and its complement holds no share, only interactions of even order and the level of the
    machine. The level drifts, so neighbours in time are differenced (in replays of recorded noise as good as
    an AR(1) model of the drift, with nothing to tune). Observations of a worker are taken in run order. Where
    there are too few for all pairs at once each is fitted alone. No candidates for fewer than two switches.
    """
    if k < 2:
        return []
    index = np.array(list(itertools.combinations(range(k), 2)))
    rows, steps = [], []
    for cycles in usable_cycles(observations, k)[0].values():
        for cycle in cycles:
            masks, means = _pair_means(cycle)
            x = signs(np.array(masks), k)
            rows.append(np.diff(x[:, index[:, 0]] * x[:, index[:, 1]], axis=0))
            steps.append(np.diff(means))
    if not rows:
        return []
    effect, t = _fit(np.concatenate(rows), np.concatenate(steps))
    best = np.argsort(-np.abs(t), kind="stable")[:keep]
    return [Candidate((int(index[n, 0]), int(index[n, 1])), 4 * float(effect[n]), float(t[n])) for n in best]


def _fit(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients and t statistics, each of shape (pairs,); all at once, or each alone if data are few."""
    count, pairs = x.shape
    normal = x.T @ x
    spare = count - pairs
    if spare > 0 and np.linalg.matrix_rank(normal, hermitian=True) == pairs:
        inverse = np.linalg.inv(normal)
        effect = inverse @ (x.T @ y)
        variance = ((y - x @ effect) ** 2).sum() / spare * np.diag(inverse)
    else:
        square = np.maximum(np.diag(normal), 1e-12)
        effect = x.T @ y / square
        variance = ((y[:, None] - x * effect) ** 2).sum(axis=0) / max(1, count - 1) / square
    return effect, effect / np.sqrt(np.maximum(variance, 1e-24))


def _contrasts(
    observations: Sequence[Observation],
) -> dict[tuple[int, int], dict[int, dict[bool, list[float]]]]:
    """Effect of every confirmation block in log units, by pair, worker and whether others are at flash."""
    found: dict = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for observation in observations:
        if observation.group.kind == CONFIRM:
            i, j, background = block_pair(observation.group)
            none, first, both, second = (np.log(observation.seconds) + np.log(observation.seconds[::-1]))[
                :4
            ] / 2
            found[i, j][observation.worker][background != 0].append(both - first - second + none)
    return found


def _interval(estimates: Sequence[float], confidence: float) -> Interval:
    if not estimates:
        return Interval(math.nan, 0.0, math.inf, confidence)
    return exp_interval(mean_of(estimates).interval(confidence))


def confirm_interactions(
    observations: Sequence[Observation], active: Sequence[SwitchLevels]
) -> tuple[tuple[Interaction, ...], float | None]:
    """Interactions from the confirmation blocks alone, largest first, and the smallest that could be found.

    One estimate per worker and background; t over workers at 1 - 0.05 / 3 (or / the number of pairs if more).
    ``confirmed`` rests on the mean over both backgrounds. The second result is the ratio above which an
    effect of the widest candidate would have been found with 80 % power, None without two workers of blocks.
    """
    found = _contrasts(observations)
    confidence = 1 - 0.05 / max(KEEP, len(found))
    results: list[Interaction] = []
    detectable: list[float] = []
    for (i, j), workers in found.items():
        sides = {
            flash: [float(np.mean(by_side[flash])) for by_side in workers.values() if flash in by_side]
            for flash in (False, True)
        }
        if len(active) == 2:
            sides[True] = sides[False]
        means = [
            float(np.mean([np.mean(blocks) for blocks in by_side.values()])) for by_side in workers.values()
        ]
        joint = _interval(means, confidence)
        confirmed = not joint.low <= 1 <= joint.high
        on_standard, on_flash = (_interval(sides[flash], confidence) for flash in (False, True))
        names = (active[i].name, active[j].name)
        results.append(Interaction(names, on_standard, on_flash, confirmed, joint))
        mean = mean_of(means)
        if mean.df >= 1:
            quantiles = t_quantile(confidence, mean.df) + t_quantile(2 * POWER - 1, mean.df)
            detectable.append(quantiles * mean.standard_error)
    results.sort(key=lambda r: -abs(math.log(r.ratio.value)) if r.ratio else 0.0)
    return tuple(results), math.exp(max(detectable)) if detectable else None
