"""Widths and coverage of shares by three estimators, simulated on the costs of a real run.

    python tools/attribution_design.py [RECORD] [--runs 100]

The truth is a table of all mixtures: the costs fitted to RECORD (an ``explain`` run with isolated times), times
random factors that no sum of costs explains. Eight workers run one cycle each, with every complement pair, half or
a third of them, under replayed noise and placements of their own. Printed: how often the 95 % interval of a share
holds its exact Shapley value (mean over switches, and the worst switch), the widest share's half-width in log
units (median over runs), and the largest bias.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np

from flashperf.attribution import (
    CostModel,
    Observation,
    active_switches,
    cycle_groups,
    estimate_workers,
    pairs_per_cycle,
    shapley,
)
from flashperf.attribution.shapley import signs
from flashperf.explain.analysis import costs_of
from flashperf.explain.record import observations_of, sort_lines
from flashperf.noise import load_noise
from flashperf.stats import t_interval
from flashperf.store import read_records

WORKERS = 8
NOISE_SCALE = 0.15  # of the recorded noise, which is that of a busy machine
PLACEMENT_SD = 0.005
DEVIATIONS = (0.02, 0.05)  # sd of the factors of mixtures, in log units

Estimator = Callable[[list[Observation]], np.ndarray]


def estimators(k: int, costs: CostModel) -> dict[str, Estimator]:
    """Shares of each worker (P, k) by name."""

    def each_alone(observations: list[Observation]) -> np.ndarray:
        own = [[o for o in observations if o.worker == worker] for worker in range(WORKERS)]
        return np.array([estimate_workers(part, k).shares[0] for part in own])

    return {
        "each worker by itself": each_alone,
        "pooled": lambda observations: estimate_workers(observations, k).shares,
        "pooled, with costs": lambda observations: estimate_workers(observations, k, costs).shares,
    }


def simulate(log_times: np.ndarray, k: int, pairs: int, rng: np.random.Generator) -> list[Observation]:
    """One cycle of every worker."""
    noise, observations = load_noise(), []
    for worker in range(WORKERS):
        placed = log_times + signs(np.arange(1 << k), k) @ rng.normal(0, PLACEMENT_SD, k)
        groups = cycle_groups(k, rng, pairs)
        calls = np.array([mask for group in groups for mask in group.masks])
        logs = placed[calls] + NOISE_SCALE * noise.replay(calls.size, rng)
        seconds = iter(np.exp(logs).tolist())
        observations += [
            Observation(worker, 0, group, tuple(next(seconds) for _ in group.masks)) for group in groups
        ]
    return observations


def main() -> None:
    """Print a row per estimator, design and misfit of the costs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("record", nargs="?", default="results/xeon-amx/explain-a.jsonl")
    parser.add_argument("--runs", type=int, default=100)
    arguments = parser.parse_args()
    record = sort_lines(read_records(arguments.record).lines)
    costs, k = costs_of(record), len(active_switches(record.switches))
    if costs is None:
        parser.error(f"{arguments.record} has no isolated times")
    fitted = costs.log_times(observations_of(record))
    usual = pairs_per_cycle(k)
    print(f"{arguments.record}: {k} switches, {arguments.runs} runs a row, {WORKERS} workers x 1 cycle")
    print(f"{'misfit':>6}  {'pairs':>5}  {'shares':<22}{'coverage':>9}{'worst':>7}{'widest':>8}{'bias':>8}")
    for deviation in DEVIATIONS:
        truth = fitted + np.random.default_rng(5).normal(0, deviation, 1 << k)
        for pairs in (usual, -(-usual // 2), -(-usual // 3)):
            drawn = [simulate(truth, k, pairs, np.random.default_rng((9, n))) for n in range(arguments.runs)]
            for name, estimate in estimators(k, costs).items():
                found = [[t_interval(share) for share in estimate(each).T] for each in drawn]
                print(f"{deviation:6.0%}  {pairs:5}  {name:<22}{row(found, shapley(truth))}")


def row(found: list[list], exact: np.ndarray) -> str:
    """Coverage, that of the worst switch, median of the widest half-width, largest bias."""
    held = np.array([[i.low <= t <= i.high for i, t in zip(run, exact, strict=True)] for run in found])
    widest = np.median([max(i.half_width for i in run) for run in found])
    bias = np.abs(np.mean([[i.value for i in run] for run in found], axis=0) - exact).max()
    return f"{held.mean():9.1%}{held.mean(axis=0).min():7.0%}{widest:8.4f}{bias:8.4f}"


if __name__ == "__main__":
    main()
