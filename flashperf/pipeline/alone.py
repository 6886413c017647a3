"""Calls of the pipeline timed by themselves: warm, and with the second-level cache emptied before."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from flashperf import native

_WARM_SAMPLE_S = 300e-6
_EVICT_BYTES = 8 << 20  # well above two L2 caches; no user program can empty a shared L3
#: (keys at most, samples of each): eight workers time every key, so the more there are, the fewer samples it takes.
_SAMPLES = ((200, 3), (400, 2))

Runs = list[Callable[[], None]]


def times_alone(engine: Any, calls: Mapping[str, Runs]) -> dict[str, dict[str, list[float]]]:
    """Seconds of every kind of call: key -> {"warm": [...], "cold": [...]}; calls of one key take turns."""
    samples = next((n for most, n in _SAMPLES if len(calls) <= most), 1)
    evict = np.zeros(_EVICT_BYTES, np.uint8)
    return {
        key: {"warm": _warm(engine, runs, samples), "cold": _cold(engine, runs, samples, evict)}
        for key, runs in calls.items()
    }


def _round(engine: Any, runs: Runs) -> Callable[[], Any]:
    """All runs once, the way the pipeline would: native calls in one sequence, host work from Python."""
    if hasattr(engine, "back_to_back"):
        return engine.back_to_back(runs)
    if all(isinstance(run, native.Call) for run in runs):
        return native.Sequence(runs)  # type: ignore[arg-type]
    return lambda: [run() for run in runs]


def _warm(engine: Any, runs: Runs, samples: int) -> list[float]:
    once = _round(engine, runs)
    once()
    begin = time.perf_counter()
    once()
    rounds = max(1, round(_WARM_SAMPLE_S / max(time.perf_counter() - begin, 1e-7)))
    many = _round(engine, runs * rounds)
    found = []
    for _ in range(samples):
        begin = time.perf_counter()
        many()
        found.append((time.perf_counter() - begin) / (rounds * len(runs)))
    return found


def _cold(engine: Any, runs: Runs, samples: int, evict: np.ndarray) -> list[float]:
    if hasattr(engine, "time_cold"):
        return [engine.time_cold(runs[number % len(runs)]) for number in range(samples)]
    found = []
    for number in range(samples):
        run = runs[number % len(runs)]
        evict += 1
        begin = time.perf_counter()
        run()
        found.append(time.perf_counter() - begin)
    return found
