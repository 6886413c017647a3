"""The pipeline as a worker's subject: mixtures bound on demand, checked before they are timed."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from flashperf import memory
from flashperf.disturbance import host_counters
from flashperf.dtypes import widen
from flashperf.pipeline import quality
from flashperf.pipeline.alone import times_alone
from flashperf.pipeline.buffers import Buffers
from flashperf.pipeline.calibration import CALIBRATION_BYTES, calibration_of
from flashperf.pipeline.engines import engine_of
from flashperf.pipeline.models import load_model
from flashperf.pipeline.plan import storage_of
from flashperf.pipeline.reference import forward
from flashperf.pipeline.scenario import scenario as scenario_of
from flashperf.pipeline.storage import WeightStore
from flashperf.pipeline.switches import Levels
from flashperf.pipeline.task import Task
from flashperf.pipeline.text import prompts
from flashperf.pipeline.tolerance import check_logits

_INSTANCES = 4  # calls of one key that take turns in an isolated measurement: as many as small has layers
LATENCY_PERCENTS = (50, 95, 99)


class WrongLogitsError(RuntimeError):
    """A mixture whose logits are wrong, or that did not run what was planned; it is never timed."""


class PipelineSubject:
    """The language model under any mixture of switches."""

    def __init__(
        self,
        model: str = "small",
        scenario: str = "single",
        isa: str | None = None,
        seed: int = 0,
        backend: str = "cpu",
    ) -> None:
        self.engine = engine_of(backend, isa)
        self.config, self.source = load_model(model, seed)
        self.scenario = scenario_of(scenario, seed)
        self.calibration = calibration_of(self.source, self.config, calibration_tokens)
        self._references: dict[int | None, np.ndarray] = {}
        self._tasks: dict[tuple[tuple[str, str], ...], Task] = {}
        self._warm: set[tuple[tuple[str, str], ...]] = set()
        self.rebuild(0)

    def rebuild(self, seed: int) -> None:
        """Fresh weights and buffers; every mixture is bound again when it is next asked for."""
        for task in self._tasks.values():
            task.close()
        self._tasks = {}
        self._warm.clear()
        if hasattr(self.engine, "forget"):
            self.engine.forget()
        # A buffer of another size each time moves everything that is allocated after it.
        self._shift = np.empty(4096 * (1 + seed % 61), np.uint8)
        self.weights = WeightStore(self.engine, self.source, self.calibration)
        self.buffers = Buffers(self.engine)

    def bind(self, mixtures: Sequence[Levels]) -> None:
        """Bind mixtures that aren't bound yet, long before they run."""
        for levels in mixtures:
            key = tuple(sorted(levels.items()))
            if key not in self._tasks:
                self._tasks[key] = self._task(levels)

    def prepare(self, levels: Levels) -> None:
        """Bind one mixture, if it isn't bound yet; touch its code and weights before its first run, by decoding."""
        key = tuple(sorted(levels.items()))
        self.bind([levels])
        if key not in self._warm:
            self._tasks[key].warm_up()
            self._warm.add(key)

    def check(self, mixtures: Sequence[Levels]) -> list[float]:
        """Run each mixture once and check its logits and the calls it made: SNRs in dB.

        The caller asks for this before it first times a mixture; workers run the same kernels on the same
        weights, so one of them checks for all. Raises WrongLogitsError.
        """
        for levels in mixtures:
            self.prepare(levels)
        return [self.verify(self._tasks[tuple(sorted(levels.items()))]) for levels in mixtures]

    def _task(self, levels: Levels) -> Task:
        return Task(self.engine, self.config, self.weights, self.buffers, self.scenario, levels)

    def run(self, levels: Levels) -> dict[str, float]:
        """Seconds of one run of all tasks, until the first logits, and (where tasks arrive) of each task.

        Beside them the page faults of the run, what it waited for state to be saved, and the time that the
        thread was ready but not running, where the system tells.
        """
        task = self._tasks[tuple(sorted(levels.items()))]
        before = host_counters()
        times = task.run()
        after = host_counters()
        found = {"seconds": times.total_s, "first_s": times.first_s}
        found |= {name: after[name] - value for name, value in before.items()}
        if task.checkpoint is not None:
            found["checkpoint_wait_s"] = task.checkpoint.wait_s
        if self.scenario.serves:
            found["queued_s"] = float(times.queued_s.mean())
            for percent in LATENCY_PERCENTS:
                found[f"latency_p{percent}_s"] = float(np.percentile(times.latencies_s, percent))
        return found

    def verify(self, task: Task) -> float:
        """Run once; logits against float64 and executed calls against planned ones. Returns the SNR in dB.

        Raises WrongLogitsError naming the step, the limit or the kernel that did not run as often as planned.
        """
        before = executed(task)
        logits: list[np.ndarray] = []
        task.run(collect=logits)
        ran = executed(task)
        ran.subtract(before)
        planned = task.counts()
        for key, count in planned.items():
            if not key.startswith("host_") and ran[key] != count:
                raise WrongLogitsError(f"{key} ran {ran[key]} times, planned were {count}")
        got = widen(np.stack(logits), storage_of(task.levels))
        check = check_logits(got, self.reference(task.levels), task.levels)
        if not check.passed:
            mixture = ", ".join(f"{k}={v}" for k, v in task.levels.items())
            raise WrongLogitsError(f"wrong logits with {mixture}: {check.reason}")
        return check.snr_db

    def reference(self, levels: Levels) -> np.ndarray:
        """Float64 logits [steps + 1, tasks, vocab] after each prompt and each fed byte."""
        span = None if levels["span"] == "full" else self.scenario.window
        if span not in self._references:
            whole = forward(self.source, self.config, self.scenario.sequences(), span)
            steps = np.arange(self.scenario.steps + 1)
            picked = [whole[i, n - 1 + steps] for i, n in enumerate(self.scenario.lengths)]
            self._references[span] = np.stack(picked, axis=1)
        return self._references[span]

    def profile(self, levels: Levels) -> dict[str, float]:
        """One run with every native call timed: seconds in kernels, in copies of weights, and in all."""
        self.prepare(levels)
        task = self._tasks[tuple(sorted(levels.items()))]
        times = task.run_profiled()
        found = {"kernel_s": times.kernel_s, "seconds": times.total_s}
        if times.staged_s:
            found |= {"staged_s": times.staged_s, "staged_bytes": float(staged_bytes(task))}
        return found

    def peak_memory(self, levels: Levels) -> dict[str, float]:
        """Peak bytes that one mixture adds: its weights, caches and buffers. Resident ones here, or those on the GPU.

        Ask a fresh worker: memory that an earlier mixture gave back to the allocator is not counted again.
        Beside it how many of the rows that are computed carry a token, and the buffers asked for in a run.
        """
        gc.collect()
        on_device = getattr(self.engine, "used_bytes", None)
        before = on_device() if on_device else memory.reset_peak()
        task = self._task(levels)
        task.run()
        peak = (on_device or memory.peak_bytes)() - before
        real, computed = task.schedule.rows(self.scenario.lengths)
        allocations = sum(n for key, n in task.counts().items() if key.startswith("fresh_pages("))
        task.close()
        return {
            "peak_bytes": float(peak),
            "real_rows": float(real),
            "computed_rows": float(computed),
            "allocations": float(allocations),
        }

    def held_out(self, levels: Levels, n_bytes: int) -> dict[str, float]:
        """Bits per byte and next-byte accuracy on held-out text."""
        return quality.held_out(self.engine, self.config, self.weights, levels, n_bytes)

    def isolated(self, mixtures: Sequence[Levels]) -> dict[str, dict[str, list[float]]]:
        """Seconds of every kind of call in isolation, warm and with L2 evicted: key -> {"warm": [...], "cold": [...]}.

        ``mixtures`` must cover the keys wanted. Calls of one key from several layers take turns, as they do in
        the pipeline; decoding calls are timed at the middle of the decode.
        """
        found: dict[str, list[Callable[[], None]]] = {}
        for levels in mixtures:
            self.prepare(levels)
            task = self._tasks[tuple(sorted(levels.items()))]
            task.settle()
            for key, runs in by_key(task).items():
                found.setdefault(key, runs)
        return times_alone(self.engine, found)


def executed(task: Task) -> Counter[str]:
    """How often each key's native calls have run so far."""
    total: Counter[str] = Counter()
    for key, run, _ in task.actions():
        if isinstance(getattr(run, "count", None), int):
            total[key] += run.count  # type: ignore[attr-defined]
    return total


def staged_bytes(task: Task) -> int:
    """Bytes of weights that one run copies in."""
    calls = [(call, step) for step in task.steps for call in (*step.program.calls, *step.program.copies)]
    return sum(
        call.arrays[0].nbytes * len(step.blocks) for call, step in calls if call.kernel.startswith("stage_")
    )


def calibration_tokens() -> np.ndarray:
    """The end of the last prompt: no scenario but the largest batches reaches it."""
    return np.frombuffer(prompts()[-1].text.encode(), np.uint8)[-CALIBRATION_BYTES:].astype(np.int32)


def by_key(task: Task) -> Mapping[str, list[Callable[[], None]]]:
    """Up to _INSTANCES calls of every key of a task."""
    found: dict[str, list[Callable[[], None]]] = {}
    for key, run, _ in task.actions():
        runs = found.setdefault(key, [])
        if len(runs) < _INSTANCES:
            runs.append(run)
    return found
