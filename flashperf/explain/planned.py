"""What the pipeline plans in every mixture, counted without running it: the base of the prediction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from flashperf.attribution import SwitchLevels
from flashperf.pipeline.config import ModelConfig
from flashperf.pipeline.engine import RecordingEngine
from flashperf.pipeline.scenario import Scenario
from flashperf.pipeline.storage import Buffers, WeightStore
from flashperf.pipeline.switches import Levels
from flashperf.pipeline.task import Task

Counts = Mapping[int, Mapping[str, int]]


class Planner:
    """Counts the calls of any mixture of one scenario; each mixture is lowered once."""

    def __init__(self, config: ModelConfig, scenario: Scenario) -> None:
        engine = RecordingEngine()
        shapes = config.shapes()
        stubs = {name: engine.empty(shape, "f32") for name, shape in shapes.items()}
        self._parts = (engine, config, WeightStore(engine, stubs), Buffers(engine), scenario)
        self._counts: dict[tuple[tuple[str, str], ...], Counter[str]] = {}

    def counts(self, levels: Levels) -> Counter[str]:
        """Calls of one run under ``levels``, by key."""
        key = tuple(sorted(levels.items()))
        if key not in self._counts:
            self._counts[key] = Task(*self._parts, levels).counts()
        return self._counts[key]


def find_active(planner: Planner, standard: Levels, flash: Levels) -> list[SwitchLevels]:
    """Every switch, and whether it changes a planned call: alone, or with all others at flash."""
    found = []
    for name, level in flash.items():
        alone = {**standard, name: level}
        without = {**flash, name: standard[name]}
        active = level != standard[name] and (
            planner.counts(alone) != planner.counts(standard)
            or planner.counts(without) != planner.counts(flash)
        )
        found.append(SwitchLevels(name, standard[name], level, active))
    return found


def mixture(switches: list[SwitchLevels], mask: int) -> dict[str, str]:
    """Levels of a mask: bit i is the i-th active switch; inactive ones stand at standard."""
    levels, bit = {}, 0
    for switch in switches:
        on = switch.active and mask >> bit & 1
        levels[switch.name] = switch.flash if on else switch.standard
        bit += switch.active
    return levels


def count_all(planner: Planner, switches: list[SwitchLevels]) -> dict[int, dict[str, int]]:
    """Calls of all 2**k mixtures of the active switches."""
    k = sum(switch.active for switch in switches)
    return {mask: dict(planner.counts(mixture(switches, mask))) for mask in range(1 << k)}


def covering_masks(counts: Counts) -> list[int]:
    """A few mixtures that together make every kind of call: greedy set cover, the richest first."""
    missing = set().union(*(set(calls) for calls in counts.values()))
    chosen = []
    while missing:
        best = max(counts, key=lambda mask: (len(missing & set(counts[mask])), -mask))
        chosen.append(best)
        missing -= set(counts[best])
    return chosen


def pack_counts(counts: Counts) -> dict[str, list]:
    """Counts as lists for a record: the keys once, and (key index, count) pairs per mask."""
    keys = sorted(set().union(*(set(calls) for calls in counts.values())))
    index = {key: i for i, key in enumerate(keys)}
    rows = [[[index[key], n] for key, n in counts[mask].items()] for mask in sorted(counts)]
    return {"keys": keys, "masks": rows}


def unpack_counts(packed: Mapping[str, list]) -> dict[int, dict[str, int]]:
    """The inverse of ``pack_counts``."""
    keys = packed["keys"]
    return {mask: {keys[i]: int(n) for i, n in row} for mask, row in enumerate(packed["masks"])}


def isolated_medians(record: Mapping[str, Mapping[str, list[float]]], state: str) -> dict[str, float]:
    """Seconds of every call of one worker: the median of its isolated samples, "warm" or "cold"."""
    return {key: float(np.median(samples[state])) for key, samples in record.items()}
