"""Double blocks of a scenario, read back: one estimate per process. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from flashperf.blocks import Block
from flashperf.records import Comparison, Interval
from flashperf.scenarios.definition import Line
from flashperf.stats import compare_log_ratios, ratio_interval, trimmed_mean
from flashperf.store import from_json

MARGIN = 0.02

Key = tuple[Any, ...]


def blocks_by(lines: Sequence[Line], *names: str) -> dict[Key, dict[int, list[Block]]]:
    """Blocks by the values of the named fields, and by process; keys in the order of the record."""
    found: dict[Key, dict[int, list[Block]]] = defaultdict(lambda: defaultdict(list))
    for line in lines:
        if line["kind"] == "block":
            key = tuple(line[name] for name in names)
            found[key][line["worker"]].append(from_json(Block, line["block"]))
    return found


def compared(blocks: dict[int, list[Block]]) -> Comparison:
    """Side B against side A over the processes."""
    ratios = [trimmed_mean([block.log_ratio for block in own]) for own in blocks.values()]
    return compare_log_ratios(ratios, MARGIN, blocks=sum(map(len, blocks.values())))


def side_times(blocks: dict[int, list[Block]], side: str) -> Interval:
    """Seconds per call of a side, over the processes."""
    logs = [
        [math.log(sample.wall_s) for block in own for sample in block.of(side)] for own in blocks.values()
    ]
    return ratio_interval([float(np.mean(own)) for own in logs])


def percentile_s(blocks: dict[int, list[Block]], side: str, percent: float) -> float:
    """A percentile of all samples of a side, in seconds; of a distribution that processes share, no estimate."""
    samples = [sample.wall_s for own in blocks.values() for block in own for sample in block.of(side)]
    return float(np.percentile(samples, percent))
