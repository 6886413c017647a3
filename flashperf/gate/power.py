"""Error rates, power and coverage of the gate by simulation: recorded noise of a real machine, replayed.

Every double block takes consecutive recorded noise, from a random place, for its lead-in and timed calls; every
pair has a placement of its own. The verdicts are those of ``rule.judge``; looks are those of ``looks``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from flashperf.gate.looks import DEFAULT_PAIRS, FIRST_LOOK, STEP
from flashperf.gate.rule import CANT_TELL, PASSED, SLOWER, Judged, Verdict, judge
from flashperf.gate.sampling import BLOCKS
from flashperf.noise import Noise
from flashperf.stats import mean_of

BENCHES = 12
PLACEMENT_SD = 0.003  # of a pair: where both processes put their buffers
_ORDERS = ("ABBABAAB", "BAABABBA")
_SIGNS = np.array([[1.0 if side == "B" else -1.0 for side in order] for order in _ORDERS]) / 4
_CALLS = 16  # of a block: a lead-in before each of eight samples
_TRIM = 0.2


@dataclass(frozen=True)
class Scenario:
    """What is simulated: D, the true slowdown of every bench, the pair sd (None: as recorded), blocks a pair."""

    threshold: float
    effect: float
    pair_sd: float | None = 0.01
    blocks: int = BLOCKS


@dataclass(frozen=True)
class Rates:
    """Fractions over all trials. coverage: of the 95 % intervals, over the benches of all suites."""

    scenario: Scenario
    trials: int
    slower: float
    suites_slower: float
    certified: float
    coverage: float
    pair_sd: float


def pair_logs(noise: Noise, shape: tuple[int, ...], blocks: int, rng: np.random.Generator) -> np.ndarray:
    """Log ratios of pairs of identical code, of that shape: 20 % trimmed means of blocks on replayed noise."""
    series = noise.log_series
    starts = rng.integers(series.size, size=(*shape, 1))
    samples = series[(starts + np.arange(blocks * _CALLS)) % series.size]
    timed = samples.reshape(*shape, blocks, _CALLS)[..., 1::2]
    signs = _SIGNS[rng.integers(2, size=(*shape, blocks))]
    ratios = np.sort((timed * signs).sum(axis=-1), axis=-1)
    cut = int(_TRIM * blocks)
    return np.asarray(ratios[..., cut : blocks - cut].mean(axis=-1))


def simulate(
    scenario: Scenario, noise: Noise, trials: int = 1000, seed: int = 0, benches: int = BENCHES
) -> Rates:
    """``trials`` suites of ``benches`` benches, all slowed by the same effect."""
    rng = np.random.default_rng(seed)
    chunks = [
        pair_logs(noise, (min(100, trials - start), benches, DEFAULT_PAIRS), scenario.blocks, rng)
        for start in range(0, trials, 100)
    ]
    logs = np.concatenate(chunks)
    logs += rng.normal(0, PLACEMENT_SD, logs.shape)
    if scenario.pair_sd is not None:
        logs *= scenario.pair_sd / logs.std()
    spread = float(logs.std())
    truth = math.log1p(scenario.effect)
    verdicts = [suite_verdicts(suite + truth, scenario.threshold) for suite in logs]
    flat = [verdict for suite in verdicts for verdict in suite]
    covered = [v.ratio.low <= math.exp(truth) <= v.ratio.high for v in flat]
    return Rates(
        scenario,
        trials,
        float(np.mean([v.verdict == SLOWER for v in flat])),
        float(np.mean([any(v.verdict == SLOWER for v in suite) for suite in verdicts])),
        float(np.mean([v.verdict in PASSED for v in flat])),
        float(np.mean(covered)),
        spread,
    )


def suite_verdicts(logs: np.ndarray, threshold: float) -> list[Verdict]:
    """The verdicts of one suite, shape (benches, pairs), as ``looks`` arrives at them."""
    used = min(FIRST_LOOK, logs.shape[1])
    counts = [used] * logs.shape[0]
    while True:
        judged = [
            Judged(str(n), mean_of(row[:count]), threshold, count)
            for n, (row, count) in enumerate(zip(logs, counts, strict=True))
        ]
        verdicts = judge(judged)
        if used >= logs.shape[1]:
            return verdicts
        used = min(used + STEP, logs.shape[1])
        counts = [
            used if v.verdict == CANT_TELL else count for v, count in zip(verdicts, counts, strict=True)
        ]


#: The aims (docs/gate.md), each where the pair sd is at most 1 %.
SCENARIOS = (
    Scenario(0.02, 0.0),
    Scenario(0.02, 0.02),
    Scenario(0.02, 0.05),
    Scenario(0.005, 0.02, 0.005, 4 * BLOCKS),  # four times the budget: half the spread
    Scenario(0.05, 0.0),
    Scenario(0.05, 0.05),
    Scenario(0.05, 0.10),
    Scenario(0.05, 0.10, None),
)
