"""What the pipeline plans in every mixture, counted without running it: the base of the prediction."""

from __future__ import annotations

import base64
import contextlib
import json
import statistics
import zlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flashperf.attribution import CostModel, SwitchLevels
from flashperf.attribution.prediction import CountMatrix
from flashperf.pipeline.batching import schedule
from flashperf.pipeline.buffers import Buffers
from flashperf.pipeline.checkpoint import checkpoint_key
from flashperf.pipeline.config import ModelConfig
from flashperf.pipeline.decorators import mask_key
from flashperf.pipeline.engine import RecordingEngine
from flashperf.pipeline.inputs import StepShape, step_uses
from flashperf.pipeline.program import build_program
from flashperf.pipeline.scenario import Scenario
from flashperf.pipeline.storage import WeightStore
from flashperf.pipeline.switches import Levels
from flashperf.pipeline.task import HANDOVER_KEY, cache_shape, dispatch_key

Counts = Mapping[int, Mapping[str, int]]


#: Switches that change nothing inside a program.
_AROUND = ("batching", "dispatch", "checkpoint")


@dataclass(frozen=True)
class _Planned:
    """Calls of one use of a program, by key, and those of its host work; ``dispatched``: by kernel."""

    calls: Counter[str]
    dispatched: Counter[str]


class Planner:
    """Counts the calls of any mixture of one scenario, as ``Task.counts`` does; each program is lowered once."""

    def __init__(
        self, config: ModelConfig, scenario: Scenario, engine: RecordingEngine | None = None
    ) -> None:
        engine = engine or RecordingEngine()
        stubs = {name: engine.empty(shape, "f32") for name, shape in config.shapes().items()}
        self._parts = (engine, config, WeightStore(engine, stubs, lambda name: 1.0), Buffers(engine))
        self.config, self.scenario = config, scenario
        self._counts: dict[tuple[tuple[str, str], ...], Counter[str]] = {}
        self._programs: dict[tuple[StepShape, tuple[str, ...]], _Planned] = {}
        self._sums: dict[tuple[str, tuple[str, ...]], _Planned] = {}
        self._uses: dict[str, tuple[Counter[StepShape], int, int]] = {}

    def counts(self, levels: Levels) -> Counter[str]:
        """Calls of one run under ``levels``, by key."""
        key = tuple(sorted(levels.items()))
        if key not in self._counts:
            self._counts[key] = self._count(levels)
        return self._counts[key]

    def _count(self, levels: Levels) -> Counter[str]:
        _, slots, turns = self._schedule(levels["batching"])
        programs = self._all_programs(levels)
        total = programs.calls.copy()
        if levels["dispatch"] == "eager":
            total.update(programs.dispatched)
        if levels["checkpoint"] != "none":
            caches = cache_shape(self.config, self.scenario, slots)
            key = checkpoint_key(levels["checkpoint"], 2 * self.config.layers, caches)
            total[key] = turns // self.scenario.checkpoint_every
        return total

    def _all_programs(self, levels: Levels) -> _Planned:
        """Calls of all uses of all programs; the same for mixtures that differ only around them."""
        key = levels["batching"], tuple(level for name, level in levels.items() if name not in _AROUND)
        if key not in self._sums:
            calls, dispatched = Counter[str](), Counter[str]()
            for shape, count in self._schedule(levels["batching"])[0].items():
                program = self._program(shape, levels)
                for total, part in ((calls, program.calls), (dispatched, program.dispatched)):
                    total.update({name: n * count for name, n in part.items()})
            self._sums[key] = _Planned(calls, dispatched)
        return self._sums[key]

    def _schedule(self, level: str) -> tuple[Counter[StepShape], int, int]:
        """How often each program is used, slots of the cache, iterations."""
        if level not in self._uses:
            planned = schedule(self.scenario, level)
            turns = step_uses(self.scenario, planned)
            shapes = Counter(use.shape for _, prefills, decode in turns for use in (*prefills, decode))
            self._uses[level] = shapes, planned.slots, len(turns)
        return self._uses[level]

    def _program(self, shape: StepShape, levels: Levels) -> _Planned:
        key = shape, tuple(level for name, level in levels.items() if name not in _AROUND)
        if key not in self._programs:
            program = build_program(*self._parts, shape, levels)
            calls = Counter(call.key for call in (*program.calls, *program.copies))
            if levels["preprocessing"] == "rebuilt":
                window = 0 if levels["span"] == "full" else self.scenario.window
                calls[mask_key(program, window)] += 1
            if program.handovers:
                calls[HANDOVER_KEY] += program.handovers
            dispatched = Counter(dispatch_key(call.kernel) for call in program.calls)
            self._programs[key] = _Planned(calls, dispatched)
        return self._programs[key]


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
    index = {key: 1 << n for n, key in enumerate(sorted(set().union(*counts.values())))}
    made = {
        mask: sum(index[key] for key in calls) for mask, calls in counts.items()
    }  # sets of calls, as bits
    missing = (1 << len(index)) - 1
    chosen = []
    while missing:
        best = max(made, key=lambda mask: ((missing & made[mask]).bit_count(), -mask))
        chosen.append(best)
        missing &= ~made[best]
    return chosen


def pack_counts(counts: Counts) -> dict[str, Any]:
    """Counts for a record: the keys once, and (key index, count) pairs per mask, as JSON compressed by zlib."""
    keys = sorted(set().union(*counts.values()))
    index = {key: i for i, key in enumerate(keys)}
    rows = [[[index[key], n] for key, n in counts[mask].items()] for mask in sorted(counts)]
    text = json.dumps(rows, separators=(",", ":")).encode()
    return {"keys": keys, "masks_zlib": base64.b85encode(zlib.compress(text, 6)).decode()}


def unpack_counts(packed: Mapping[str, Any]) -> dict[int, dict[str, int]]:
    """The inverse of ``pack_counts``; older records have the pairs as they are."""
    keys, rows = packed["keys"], packed.get("masks")
    if rows is None:
        rows = json.loads(zlib.decompress(base64.b85decode(packed["masks_zlib"])))
    return {mask: {keys[i]: int(n) for i, n in row} for mask, row in enumerate(rows)}


def isolated_medians(record: Mapping[str, Mapping[str, list[float]]], state: str) -> dict[str, float]:
    """Seconds of every call of one worker: the median of its isolated samples, "warm" or "cold"."""
    return {key: float(statistics.median(samples[state])) for key, samples in record.items()}


def cost_model(
    counts: Counts | CountMatrix, medians: Mapping[int, Mapping[str, float]], k: int
) -> CostModel | None:
    """The cost model of k switches; None where a call was not timed by itself, or took no time at all."""
    with contextlib.suppress(ValueError):
        return CostModel(counts, medians, k)
    return None
