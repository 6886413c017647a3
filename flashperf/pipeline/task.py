"""The pipeline under one mixture of switches: prompts, then teacher-forced decoding, with its step decorators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from flashperf.pipeline.batching import schedule
from flashperf.pipeline.buffers import Buffers
from flashperf.pipeline.checkpoint import AsyncCheckpoint, Checkpoint
from flashperf.pipeline.config import ModelConfig
from flashperf.pipeline.decorators import HostAction, mask_action
from flashperf.pipeline.engine import Engine
from flashperf.pipeline.inputs import StepShape, StepUse, step_uses
from flashperf.pipeline.marks import Marks, RunTimes
from flashperf.pipeline.plan import storage_of
from flashperf.pipeline.program import Program, build_program
from flashperf.pipeline.replay import dispatch, hand_over
from flashperf.pipeline.scenario import Scenario
from flashperf.pipeline.storage import WeightStore
from flashperf.pipeline.switches import Levels

HANDOVER_KEY = "host_handover"
#: Calls that move or hand out memory; what they take is not the kernels' time.
MEMORY_CALLS = ("stage_", "fresh_pages")


@dataclass
class _Step:
    """A program, and the inputs of every use of it in one run."""

    program: Program
    decodes: bool
    before: list[HostAction] = field(default_factory=list)
    blocks: list[np.ndarray] = field(default_factory=list)


def cache_shape(config: ModelConfig, scenario: Scenario, slots: int) -> tuple[int, int, int, int]:
    """Shape of the keys, or values, of one layer: [slots, heads, positions, width]."""
    return slots, config.heads, scenario.capacity, config.head_dim


def dispatch_key(kernel: str) -> str:
    """Names what an eager framework does before this kernel runs."""
    return f"host_dispatch({kernel})"


def _uses(turns: Sequence[tuple[int, list[StepUse], StepUse]], decodes: bool) -> Iterator[StepUse]:
    """Every use of a program for prompts, or for decoding."""
    for _, prefills, decode in turns:
        yield from [decode] if decodes else prefills


class Task:
    """One scenario under one mixture, bound and ready: ``run()`` is the timed call."""

    def __init__(
        self,
        engine: Engine,
        config: ModelConfig,
        weights: WeightStore,
        buffers: Buffers,
        scenario: Scenario,
        levels: Levels,
    ) -> None:
        self.scenario, self.levels, self.config, self.engine = scenario, dict(levels), config, engine
        self.schedule = schedule(scenario, levels["batching"])
        self._parts = (engine, config, weights, buffers)
        self._steps: dict[StepShape, _Step] = {}
        self._turns = step_uses(scenario, self.schedule)
        self._prepare_programs(self._turns)
        self.checkpoint = self._checkpoint(buffers.of(self.levels["allocation"]))

    @property
    def steps(self) -> list[_Step]:
        """The programs, the largest first."""
        return list(self._steps.values())

    def _prepare_programs(self, turns: Sequence[tuple[int, list[StepUse], StepUse]]) -> None:
        """Bind every program, the largest first, so that smaller ones can share its buffers."""
        shapes = {use.shape: decodes for decodes in (False, True) for use in _uses(turns, decodes)}
        for shape in sorted(shapes, key=lambda shape: -shape.rows):
            program = build_program(*self._parts, shape, self.levels)
            self._steps[shape] = _Step(program, shapes[shape])
            if self.levels["preprocessing"] == "rebuilt":
                window = 0 if self.levels["span"] == "full" else self.scenario.window
                self._steps[shape].before.append(mask_action(self.engine, program, window))
        for decodes in (False, True):
            for use in _uses(turns, decodes):
                self._steps[use.shape].blocks.append(use.block)

    def _checkpoint(self, buffers: Buffers) -> Checkpoint | None:
        """What saves the KV cache, if anything does."""
        level = self.levels["checkpoint"]
        if level == "none":
            return None
        storage = storage_of(self.levels)
        shape = cache_shape(self.config, self.scenario, self.schedule.slots)
        names = [f"{kind}_cache{layer}" for layer in range(self.config.layers) for kind in "kv"]
        caches = [buffers.state(name, shape, storage) for name in names]
        kind = AsyncCheckpoint if level == "every_n_async" else Checkpoint
        return kind(caches, self.scenario.checkpoint_every, read=self.engine.read)

    def settle(self) -> None:
        """Set the inputs of every program to those of the middle one of its uses, for calls timed alone."""
        for step in self.steps:
            step.program.inputs.set(step.blocks[len(step.blocks) // 2])

    def warm_up(self) -> None:
        """One decoding step, untimed: instructions and weights are in the caches, pages are mapped.

        On a device every program once, since a graph is recorded when it is first run.
        """
        decode = self._steps[self._turns[0][2].shape]
        for step in self.steps if hasattr(self.engine, "device") else [decode]:
            step.program.inputs.set(step.blocks[0])
            self._step(step)

    def run(self, collect: list[np.ndarray] | None = None) -> RunTimes:
        """Run all tasks once. ``collect`` gets the logits [tasks, vocab] after the prompts and after each step."""
        return self._run(self._step, collect)

    def run_profiled(self) -> RunTimes:
        """Run once with every native call timed; slower than ``run`` by the clock reads.

        ``kernel_s`` adds up the calls that compute, ``staged_s`` the copies of weights.
        """
        kernel_ns = staged_ns = 0

        def step(which: _Step) -> None:
            nonlocal kernel_ns, staged_ns
            for action in which.before:
                action.run()
            replay = which.program.replay
            for call, duration in zip(which.program.calls, replay.timed().tolist(), strict=True):
                if call.kernel.startswith("stage_"):
                    staged_ns += duration
                elif not call.kernel.startswith(MEMORY_CALLS):
                    kernel_ns += duration
            staged_ns += getattr(replay, "copied_ns", 0)

        times = self._run(step, None)
        times.kernel_s, times.staged_s = kernel_ns / 1e9, staged_ns / 1e9
        return times

    def _run(self, step: Callable[[_Step], None], collect: list[np.ndarray] | None) -> RunTimes:
        marks = Marks()
        logits: list[tuple[StepUse, np.ndarray]] = []

        def use(what: StepUse) -> Program:
            which = self._steps[what.shape]
            which.program.inputs.set(what.block)
            step(which)
            if collect is not None:
                logits.append((what, self.engine.read(which.program.logits)))
            return which.program

        if self.checkpoint is not None:
            self.checkpoint.begin()
        for number, (clock, prefills, decode) in enumerate(self._turns):
            marks.turn(clock)
            for prefill in prefills:
                use(prefill)
                marks.logits(prefill.logits)
            program = use(decode)
            marks.logits(decode.logits)
            if self.checkpoint is not None:
                self.checkpoint.after_step(number + 1, program.inputs.host_position)
        if self.checkpoint is not None:
            self.checkpoint.finish()
        times = marks.times(self.scenario.arrivals)
        if collect is not None:
            collect.extend(self._by_step(logits))
        return times

    def _by_step(self, logits: list[tuple[StepUse, np.ndarray]]) -> Iterator[np.ndarray]:
        """Logits [tasks, vocab] of every step, from those of every use."""
        tasks, steps = len(self.scenario.prompts), self.scenario.steps + 1
        found: list[list[Any]] = [[None] * tasks for _ in range(steps)]
        for use, rows in logits:
            for (task, step), row in zip(use.logits, rows, strict=False):
                found[step][task] = row
        return (np.stack(row) for row in found)

    def _step(self, step: _Step) -> None:
        for action in step.before:
            action.run()
        step.program.replay()
        self.engine.wait()

    def actions(self) -> Iterator[tuple[str, Callable[[], None], int]]:
        """(key, run, count per task run) of every call, host work included."""
        eager = self.levels["dispatch"] == "eager"
        for step in self.steps:
            count, program = len(step.blocks), step.program
            for action in step.before:
                yield action.key, action.run, count
            for call in (*program.calls, *program.copies):
                yield call.key, call.run, count
            if eager:
                for call in program.calls:
                    yield dispatch_key(call.kernel), partial(dispatch, self.engine, call), count
            if program.handovers:
                yield HANDOVER_KEY, lambda: hand_over(self.engine), count * program.handovers
        if self.checkpoint is not None:
            inputs = next(step.program.inputs for step in self.steps if step.decodes)
            alone = self.checkpoint.alone
            saves = len(self._turns) // self.checkpoint.every_n
            yield self.checkpoint.key, lambda: alone(inputs.host_position), saves

    def counts(self) -> Counter[str]:
        """Calls of one run by key: what the isolated times are multiplied with."""
        total: Counter[str] = Counter()
        for key, _, count in self.actions():
            total[key] += count
        return total

    def close(self) -> None:
        """Remove what was written to disk."""
        if self.checkpoint is not None:
            self.checkpoint.close()
