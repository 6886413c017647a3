"""Measures the roofs: fresh processes, one after another, each with a number of its own for every ceiling."""

from __future__ import annotations

import functools
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from flashperf import backends, environment
from flashperf.errors import UserError
from flashperf.progress import NullProgress, ProgressSink
from flashperf.records import Environment
from flashperf.roofs import gpu
from flashperf.roofs.levels import assumed_levels, cache_levels, working_sets
from flashperf.roofs.model import COMPUTE, DISPATCH, MEMORY, TIMER, Ceiling, Roofs
from flashperf.workers import WorkerPool

PROCESSES = 8
BUDGET_S = 30.0
LEAST_PROCESSES = 3  # an interval from two is as good as none
_FIXED = {
    "python": (DISPATCH, "call from Python"),
    "native": (DISPATCH, "call in a native sequence"),
    "reading": (TIMER, "reading the clock"),
    "step": (TIMER, "its smallest step"),
}


def measure_roofs(
    processes: int = PROCESSES,
    budget_s: float = BUDGET_S,
    progress: ProgressSink | None = None,
    now: Callable[[], float] = time.monotonic,
    backend: str = "cpu",
) -> Roofs:
    """All ceilings of the CPU, with one thread and with as many as there are cores; or of the GPU.

    Starts no process that would, going by the slowest before it, end after ``budget_s`` seconds; a note says so.
    Raises UserError if a kernel is wrong, fewer than three processes are asked for, or there is no GPU.
    """
    if processes < LEAST_PROCESSES:
        raise UserError(f"an interval needs {LEAST_PROCESSES} processes or more, not {processes}")
    measured, captured = _what(backend)
    told = progress or NullProgress()
    told.phase("roofs", "bandwidth, arithmetic and fixed costs of this machine")
    began = now()
    notes: list[str] = []
    found: dict[Ceiling, list[float]] = defaultdict(list)
    slowest_s, done = 0.0, 0
    while done < processes:
        spent = now() - began
        if done >= LEAST_PROCESSES and spent + slowest_s > budget_s:
            notes.append(f"{done} of {processes} processes: the {budget_s:g} s were used up")
            break
        start = now()
        for ceiling, value in measured(notes if not done else []):
            found[ceiling].append(value)
        slowest_s, done = max(slowest_s, now() - start), done + 1
        told.update(done / processes, slowest_s * (processes - done), [f"{done} of {processes} processes"])
    ceilings = tuple(_with_values(ceiling, values) for ceiling, values in found.items())
    return Roofs(captured, ceilings, now() - began, tuple(notes), "cpu" if backend == "cpu" else "cuda")


def _what(backend: str) -> tuple[Callable[[list[str]], list[tuple[Ceiling, float]]], Environment]:
    """What one process measures, given where its notes go, and the environment."""
    captured = measured_device(backend)
    if backend == "cpu":
        return _one_process, captured
    return functools.partial(gpu.one_process, gpu.gpu_properties()), captured


def measured_device(backend: str) -> Environment:
    """The environment, with the GPU as its device unless the backend is the CPU. Raises UserError without a GPU."""
    if backends.backend(backend).name == "cpu":
        return environment.capture(environment.usable_cores())
    return gpu.gpu_environment(gpu.gpu_properties())


def _with_values(ceiling: Ceiling, values: list[float]) -> Ceiling:
    fields = {name: getattr(ceiling, name) for name in ceiling.__dataclass_fields__}
    return Ceiling(**{**fields, "per_process": tuple(values)})


def _one_process(notes: list[str]) -> list[tuple[Ceiling, float]]:
    """(ceiling without its values, value) of everything that one fresh process measures."""
    levels = cache_levels()
    if not levels:
        levels = assumed_levels()
        notes.append("the system gives no cache sizes: those of common servers are assumed")
    cores = environment.usable_cores()
    largest = working_sets(levels, 1)[-1].thread_bytes
    last_bytes = levels[-1].size_bytes
    if largest < 2 * last_bytes:
        notes.append(f"memory: {largest >> 20} MiB were touched, less than twice the last cache")
    found: list[tuple[Ceiling, float]] = []
    with WorkerPool(1, "flashperf.roofs.subject:RoofSubject", {"memory_bytes": largest}, {}, {}) as pool:
        call = pool.workers[0].call
        for threads in sorted({1, cores}):
            for working_set in working_sets(levels, threads, 8 * largest):
                rates = call("streams", thread_bytes=working_set.thread_bytes, threads=threads)
                found += [
                    (_ceiling(MEMORY, working_set.name, how, threads, working_set), value)
                    for how, value in rates.items()
                ]
            for kernel, value in call("peaks", threads=threads).items():
                _, number_format, unit = kernel.split("_", 2)
                found.append((_ceiling(COMPUTE, number_format, unit, threads), value))
        for how, value in call("fixed_costs").items():
            kind, name = _FIXED[how]
            found.append((_ceiling(kind, name, how, 1), value))
    return found


def _ceiling(kind: str, name: str, how: str, threads: int, working_set: Any = None) -> Ceiling:
    level_bytes = working_set.level_bytes if working_set else 0
    used_bytes = working_set.thread_bytes * threads if working_set else 0
    return Ceiling(kind, name, how, threads, (), level_bytes, used_bytes)
