"""What the pipeline plans in every mixture, counted without running it: the base of the prediction."""

from __future__ import annotations

import contextlib
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from scipy.sparse import csr_array, diags_array

from flashperf.attribution import CallCounts, CostModel, SwitchLevels
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

#: Switches that change nothing inside a program.
_AROUND = ("batching", "dispatch", "checkpoint")


@dataclass(frozen=True)
class PlannedProgram:
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
        self.programs: list[PlannedProgram] = []
        self._numbers: dict[tuple[StepShape, tuple[str, ...]], int] = {}
        self._uses: dict[tuple[str, tuple[str, ...]], list[tuple[int, int]]] = {}
        self._schedules: dict[str, tuple[Counter[StepShape], int, int]] = {}

    def counts(self, levels: Levels) -> Counter[str]:
        """Calls of one run under ``levels``, by key."""
        key = tuple(sorted(levels.items()))
        if key not in self._counts:
            self._counts[key] = self._count(levels)
        return self._counts[key]

    def _count(self, levels: Levels) -> Counter[str]:
        total = Counter(self.around(levels))
        for number, uses in self.uses(levels):
            program = self.programs[number]
            parts = (program.calls, program.dispatched) if levels["dispatch"] == "eager" else (program.calls,)
            for part in parts:
                total.update({name: n * uses for name, n in part.items()})
        return total

    def around(self, levels: Levels) -> dict[str, int]:
        """Calls of one run that stand in no program."""
        if levels["checkpoint"] == "none":
            return {}
        _, slots, turns = self._schedule(levels["batching"])
        caches = cache_shape(self.config, self.scenario, slots)
        key = checkpoint_key(levels["checkpoint"], 2 * self.config.layers, caches)
        return {key: turns // self.scenario.checkpoint_every}

    def uses(self, levels: Levels) -> list[tuple[int, int]]:
        """Programs of one run, as numbers in ``programs``, and how often each is used."""
        inside = tuple(level for name, level in levels.items() if name not in _AROUND)
        key = levels["batching"], inside
        if key not in self._uses:
            shapes, _, _ = self._schedule(levels["batching"])
            self._uses[key] = [(self._number(shape, inside, levels), n) for shape, n in shapes.items()]
        return self._uses[key]

    def _schedule(self, level: str) -> tuple[Counter[StepShape], int, int]:
        """How often each program is used, slots of the cache, iterations."""
        if level not in self._schedules:
            planned = schedule(self.scenario, level)
            turns = step_uses(self.scenario, planned)
            shapes = Counter(use.shape for _, prefills, decode in turns for use in (*prefills, decode))
            self._schedules[level] = shapes, planned.slots, len(turns)
        return self._schedules[level]

    def _number(self, shape: StepShape, inside: tuple[str, ...], levels: Levels) -> int:
        """The number of a program, which is lowered when it is first asked for."""
        if (shape, inside) not in self._numbers:
            self._numbers[shape, inside] = len(self.programs)
            self.programs.append(self._lower(shape, levels))
        return self._numbers[shape, inside]

    def _lower(self, shape: StepShape, levels: Levels) -> PlannedProgram:
        program = build_program(*self._parts, shape, levels)
        calls = Counter([call.key for call in (*program.calls, *program.copies)])
        if levels["preprocessing"] == "rebuilt":
            window = 0 if levels["span"] == "full" else self.scenario.window
            calls[mask_key(program, window)] += 1
        if program.handovers:
            calls[HANDOVER_KEY] += program.handovers
        kernels = Counter([call.kernel for call in program.calls])
        return PlannedProgram(calls, Counter({dispatch_key(kernel): n for kernel, n in kernels.items()}))


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


def count_all(planner: Planner, switches: list[SwitchLevels]) -> CallCounts:
    """Calls of all 2**k mixtures of the active switches."""
    mixtures = [mixture(switches, mask) for mask in range(1 << sum(switch.active for switch in switches))]
    uses = _sparse([dict(planner.uses(levels)) for levels in mixtures])
    eager = np.array([levels["dispatch"] == "eager" for levels in mixtures], float)
    position: dict[str, int] = {}
    parts = [
        _numbered([program.calls for program in planner.programs], position),
        _numbered([program.dispatched for program in planner.programs], position),
        _numbered([planner.around(levels) for levels in mixtures], position),
    ]
    size = len(position)
    calls, dispatched, around = (_sparse(rows, size) for rows in parts)
    uses.resize(len(mixtures), len(planner.programs))
    matrix = csr_array(uses @ calls + (diags_array(eager) @ uses) @ dispatched + around)
    made = np.flatnonzero(matrix.sum(axis=0))  # other programs were lowered to find the active switches
    keys = list(position)
    return CallCounts(tuple(keys[column] for column in made), csr_array(matrix[:, made]))


def _numbered(rows: Iterable[Mapping[str, int]], position: dict[str, int]) -> list[dict[int, int]]:
    """Counts by the position of their key; a new key gets the next."""
    return [{position.setdefault(key, len(position)): n for key, n in row.items()} for row in rows]


def _sparse(rows: Sequence[Mapping[int, int]], columns: int | None = None) -> csr_array:
    """Rows of counts by column as a matrix."""
    ends = np.cumsum([0, *map(len, rows)])
    where = np.fromiter(chain.from_iterable(rows), np.int64, ends[-1])
    counts = np.fromiter(chain.from_iterable(row.values() for row in rows), float, ends[-1])
    width = columns if columns is not None else int(where.max(initial=-1)) + 1
    return csr_array((counts, where, ends), shape=(len(rows), width))


def isolated_medians(record: Mapping[str, Mapping[str, list[float]]], state: str) -> dict[str, float]:
    """Seconds of every call of one worker: the median of its isolated samples, "warm" or "cold"."""
    return {key: float(statistics.median(samples[state])) for key, samples in record.items()}


def cost_model(counts: CallCounts, medians: Mapping[int, Mapping[str, float]], k: int) -> CostModel | None:
    """The cost model of k switches; None where a call was not timed by itself, or took no time at all."""
    with contextlib.suppress(ValueError):
        return CostModel(counts, medians, k)
    return None
