"""The pipeline under one mixture of switches: prefill, then teacher-forced decoding, with its step decorators."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from flashperf.pipeline.config import ModelConfig
from flashperf.pipeline.decorators import Checkpoint, rebuild_mask
from flashperf.pipeline.engine import Engine
from flashperf.pipeline.plan import storage_of
from flashperf.pipeline.program import Program, StepShape, build_program
from flashperf.pipeline.scenario import Scenario
from flashperf.pipeline.storage import Buffers, WeightStore
from flashperf.pipeline.switches import Levels


@dataclass
class RunTimes:
    """What one run took, seconds: to the first logits, and in all; and the program calls' own time if asked for."""

    first_s: float = 0.0
    total_s: float = 0.0
    kernel_s: float = 0.0


@dataclass(frozen=True)
class HostAction:
    """Work of a step on the host that a prediction must count like a kernel call."""

    key: str
    run: Callable[[], None]


@dataclass
class _Step:
    program: Program
    before: list[HostAction] = field(default_factory=list)


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
        self.scenario, self.levels, self.config = scenario, dict(levels), config
        self.engine = engine
        lengths = scenario.lengths
        tasks = len(lengths)
        ends = np.cumsum(lengths)
        common = {"outputs": tasks, "slots": tasks, "capacity": scenario.capacity, "window": scenario.window}
        segments = tuple((int(end - n), int(end)) for end, n in zip(ends, lengths, strict=True))
        build = lambda shape: build_program(engine, config, weights, buffers, shape, levels)  # noqa: E731
        self.prefill = _Step(build(StepShape(int(ends[-1]), segments, **common)))
        self.decode = _Step(build(StepShape(tasks, ((0, tasks),), **common)))
        self._prefill_rows = (
            np.concatenate(scenario.prompts),
            np.repeat(np.arange(tasks), lengths),
            np.concatenate([np.arange(n) for n in lengths]),
            ends - 1,
        )
        self._columns = np.ascontiguousarray(scenario.continuation.T)
        self.checkpoint = self._decorate(buffers)

    def _decorate(self, buffers: Buffers) -> Checkpoint | None:
        if self.levels["preprocessing"] == "rebuilt":
            window = 0 if self.levels["span"] == "full" else self.scenario.window
            for step in (self.prefill, self.decode):
                size = "x".join(map(str, step.program.mask.shape))
                action = rebuild_mask(self.engine, step.program, window)
                step.before.append(HostAction(f"host_mask({size},window={window})", action))
        if self.levels["checkpoint"] == "none":
            return None
        config, storage = self.config, storage_of(self.levels)
        shape = (len(self.scenario.prompts), config.heads, self.scenario.capacity, config.head_dim)
        names = [f"{kind}_cache{layer}" for layer in range(config.layers) for kind in "kv"]
        caches = [buffers.get(name, shape, storage) for name in names]
        return Checkpoint(caches, self.scenario.checkpoint_every, read=self.engine.read)

    def start(self) -> None:
        """Set the inputs of the prefill."""
        self.prefill.program.inputs.fill(*self._prefill_rows)

    def seek(self, step: int) -> None:
        """Set the inputs of decoding step ``step``."""
        tasks = len(self.scenario.prompts)
        rows = np.arange(tasks)
        position = self.scenario.lengths + step
        self.decode.program.inputs.fill(self._columns[step], rows, position, rows)

    def warm_up(self) -> None:
        """One decoding step, untimed: instructions and weights are in the caches, pages are mapped."""
        self.seek(0)
        self._step(self.decode)

    def run(self, collect: list[np.ndarray] | None = None) -> RunTimes:
        """Run all tasks once. ``collect`` gets a copy of the logits [tasks, vocab] after the prefill and each step."""
        begin = time.perf_counter()
        self.start()
        self._step(self.prefill)
        first = time.perf_counter()
        if collect is not None:
            collect.append(self.engine.read(self.prefill.program.logits))
        self._decode(lambda: self._step(self.decode), collect)
        return RunTimes(first - begin, time.perf_counter() - begin)

    def run_profiled(self) -> RunTimes:
        """Run once with every native call timed; ``kernel_s`` is their sum. Slower than ``run`` by the clock reads."""
        kernel_ns = 0

        def step(which: _Step) -> None:
            nonlocal kernel_ns
            for action in which.before:
                action.run()
            kernel_ns += int(which.program.replay.timed().sum())  # type: ignore[attr-defined]

        begin = time.perf_counter()
        self.start()
        step(self.prefill)
        first = time.perf_counter()
        self._decode(lambda: step(self.decode), None)
        return RunTimes(first - begin, time.perf_counter() - begin, kernel_ns / 1e9)

    def _decode(self, step: Callable[[], None], collect: list[np.ndarray] | None) -> None:
        self.seek(0)
        inputs = self.decode.program.inputs
        for number, column in enumerate(self._columns):
            if number:
                inputs.advance(column)
            step()
            if collect is not None:
                collect.append(self.engine.read(self.decode.program.logits))
            if self.checkpoint is not None:
                self.checkpoint.after_step(number + 1, inputs.host_position)

    def _step(self, step: _Step) -> None:
        for action in step.before:
            action.run()
        step.program.replay()
        self.engine.wait()

    def actions(self) -> Iterator[tuple[str, Callable[[], None], int, bool]]:
        """(key, run, count per task run, whether it belongs to decoding) of every call, host work included."""
        for step, count, decoding in ((self.prefill, 1, False), (self.decode, self.scenario.steps, True)):
            for action in step.before:
                yield action.key, action.run, count, decoding
            for call in step.program.calls:
                yield call.key, call.run, count, decoding
        if self.checkpoint is not None:
            saves = self.scenario.steps // self.checkpoint.every_n
            shape = "x".join(map(str, self.checkpoint.caches[0].shape))
            save, position = self.checkpoint, self.decode.program.inputs.host_position
            key = f"host_checkpoint({len(save.caches)}x{shape})"
            yield key, lambda: save.after_step(save.every_n, position), saves, True

    def counts(self) -> Counter[str]:
        """Calls of one run by key: what the isolated times are multiplied with."""
        total: Counter[str] = Counter()
        for key, _, count, _ in self.actions():
            total[key] += count
        return total

    def close(self) -> None:
        """Remove what was written to disk."""
        if self.checkpoint is not None:
            self.checkpoint.close()
