"""How a budget is divided into blocks, samples and chunks. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

BLOCKS = 6  # double blocks of a pair
CHUNK_S = 250e-6  # what is timed again if it was disturbed
TURN_S = 150e-6  # what a request costs beside the sample: two pipes and a wake-up


@dataclass(frozen=True)
class SamplePlan:
    """Calls per chunk, chunks per sample, double blocks per pair."""

    calls: int
    chunks: int
    blocks: int


def plan_samples(one_s: float, pair_budget_s: float, blocks: int = BLOCKS) -> SamplePlan:
    """What fills a pair's budget, seconds, with at least one block of one chunk.

    Samples grow before blocks do; a call too long for six blocks gets fewer of them. Chunks are short, so that
    one during which the process was taken off its core costs little to repeat.
    """
    if one_s <= 0 or not math.isfinite(one_s):
        raise ValueError(f"a call takes {one_s} s: the clock stood still")
    calls = max(1, math.ceil(CHUNK_S / one_s))
    chunk_s = calls * one_s
    sample_s = pair_budget_s / (8 * blocks) - one_s - TURN_S  # after its lead-in call
    if sample_s >= chunk_s:
        return SamplePlan(calls, int(sample_s / chunk_s), blocks)
    fitting = int(pair_budget_s / (8 * (one_s + chunk_s + TURN_S)))
    return SamplePlan(calls, 1, min(blocks, max(1, fitting)))
