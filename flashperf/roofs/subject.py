"""What a worker process does to measure the roofs: checks every kernel, then times it, best of a few samples.

A roof is what the machine can do, so within a process the best sample counts (whatever disturbs a sample makes
it slower, never faster); the interval comes from the processes.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from flashperf import native
from flashperf.dtypes import aligned_empty
from flashperf.errors import EXIT_FAILED, UserError
from flashperf.timers import resolution_s

#: pattern -> kernel, arrays that it walks through
STREAMS = {
    "load": ("roof_load", 1),
    "copy": ("roof_copy", 2),
    "copy around caches": ("roof_copy_around", 2),
    "update": ("roof_update", 1),
    "triad": ("roof_triad", 3),
}
FACTOR = 0.5
SAMPLES, SAMPLE_S = 15, 1e-3  # short, so that on a busy machine some are left alone
CALIBRATION_S = 2e-4
#: Arrays so large are memory: gone through in chunks, those of several threads larger, since threads start apart.
LONG_BYTES = 32 << 20
CHUNK_BYTES, TEAM_CHUNK_BYTES, CHUNKS = 8 << 20, 32 << 20, 24
STEPS = 1 << 16  # of a peak kernel: its sums stay exact, also those that grow by 32 or 64 a step
CALLS = 10_000
_CHECKED_ELEMENTS = 1000  # not a multiple of any vector


class RoofSubject:
    """Measures ceilings in this process. Sizes in bytes, results in bytes/s, FLOP/s or seconds."""

    def __init__(self, memory_bytes: int) -> None:
        """Check every kernel; touch ``memory_bytes``, of which all working sets are parts."""
        self._library = native.library()
        for pattern in STREAMS:
            check_stream(self._library, pattern)
        for kernel in self.peak_kernels():
            check_peak(self._library, kernel)
        self._buffer = aligned_empty((memory_bytes // 4,), "f32")
        self._buffer.fill(1.0)

    def peak_kernels(self) -> list[str]:
        """``peak_<format>_<unit>`` of every unit that this instruction-set level has."""
        return sorted(name for name in self._library.signatures if name.startswith("peak_"))

    def streams(self, thread_bytes: int, threads: int) -> dict[str, float]:
        """Bytes loaded and stored per second, by pattern; every thread walks through bytes of its own."""
        return {pattern: self.stream(pattern, thread_bytes, threads) for pattern in STREAMS}

    def stream(self, pattern: str, thread_bytes: int, threads: int) -> float:
        """Bytes per second of one pattern."""
        parts = self.parts(thread_bytes, threads)
        bound = [bind_stream(self._library, pattern, part, 1) for part in parts]
        moved = sum(n_bytes for _, n_bytes in bound)
        if thread_bytes >= LONG_BYTES:
            return self._chunks(pattern, parts)
        once_s = _calibrated_s(lambda n: bind_stream(self._library, pattern, parts[0], n)[0])
        repeats = max(1, round(SAMPLE_S / once_s))
        again = [bind_stream(self._library, pattern, part, repeats)[0] for part in parts]
        return moved * repeats / _best([native.Sequence([call]) for call in again], SAMPLES)

    def parts(self, thread_bytes: int, threads: int) -> list[np.ndarray]:
        """As many arrays of so many bytes, float32 [n], each in a place of its own."""
        return np.array_split(self._buffer[: threads * (thread_bytes // 64 * 16)], threads)

    def _chunks(self, pattern: str, parts: Sequence[np.ndarray]) -> float:
        """Memory, chunk after chunk, so that none is read again before all others were; an upper quartile.

        Not the best of them: one in many may have come from a cache.
        """
        length = (CHUNK_BYTES if len(parts) == 1 else TEAM_CHUNK_BYTES) // 4
        rates = []
        for n in range(CHUNKS):
            start = n * length % (parts[0].size - length + 1)
            bound = [bind_stream(self._library, pattern, part[start : start + length], 1) for part in parts]
            seconds = _best([native.Sequence([call]) for call, _ in bound], 1)
            rates.append(sum(n_bytes for _, n_bytes in bound) / seconds)
        return float(np.quantile(rates, 0.75))

    def peaks(self, threads: int) -> dict[str, float]:
        """Operations per second, by kernel."""
        return {kernel: self.peak(kernel, threads) for kernel in self.peak_kernels()}

    def peak(self, kernel: str, threads: int) -> float:
        """Operations per second of one kernel."""
        bound = [bind_peak(self._library, kernel) for _ in range(threads)]
        for call, _, _ in bound:
            call()
        repeats = max(1, round(SAMPLE_S / _best([bound[0][0]], 2)))
        seconds = _best([native.Sequence([call] * repeats) for call, _, _ in bound], SAMPLES)
        return sum(int(operations[0]) for _, _, operations in bound) * repeats / seconds

    def fixed_costs(self) -> dict[str, float]:
        """Seconds of a call from Python, of one in a native sequence, of reading the clock, and its step."""
        x, y = np.ones(1, np.float32), np.ones(1, np.float32)
        call = self._library.prepare("roof_dispatch", x, y)
        sequence = native.Sequence([call] * CALLS)
        return {
            "python": min(_loop_s(call) for _ in range(SAMPLES)),
            "native": _best([sequence], SAMPLES) / CALLS,
            "reading": min(_loop_s(time.perf_counter_ns) for _ in range(SAMPLES)),
            "step": resolution_s(),
        }


def _loop_s(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - start) / CALLS


def bind_stream(
    library: native.Library, pattern: str, part: np.ndarray, repeats: int
) -> tuple[native.Call, int]:
    """The call of a pattern on a float32 array [n], cut into its operands, and the bytes that a pass moves."""
    kernel, count = STREAMS[pattern]
    length = part.size // count // 16 * 16
    arrays = [part[n * length : (n + 1) * length] for n in range(count)]
    moved = 4 * length * (2 if pattern == "update" else count)
    if pattern == "load":
        arrays.append(aligned_empty((1,), "f32"))
    scalars = {"factor": FACTOR} if pattern == "triad" else {}
    return library.prepare(kernel, *arrays, repeats=repeats, **scalars), moved


def bind_peak(library: native.Library, kernel: str) -> tuple[native.Call, np.ndarray, np.ndarray]:
    """The call of a peak kernel, where it writes the value of its sums, and how many operations it did."""
    value, operations = np.zeros(1, np.float32), np.zeros(1, np.int64)
    x = np.ones(2, np.float32)
    return library.prepare(kernel, x, value, operations, steps=STEPS), value, operations


def check_stream(library: native.Library, pattern: str) -> None:
    """Run a stream on small arrays and compare. Raises UserError if it is wrong."""
    kernel, count = STREAMS[pattern]
    arrays = [np.arange(_CHECKED_ELEMENTS, dtype=np.float32) + n for n in range(count)]
    if pattern == "load":
        arrays.append(np.zeros(1, np.float32))
    before = [array.astype(np.float64) for array in arrays]
    scalars = {"factor": FACTOR} if pattern == "triad" else {}
    library.prepare(kernel, *arrays, repeats=3, **scalars)()
    wanted = {"load": np.array([before[0].sum()]), "update": -before[0]}
    if pattern == "triad":
        wanted["triad"] = before[0] + FACTOR * before[1]
    if not np.allclose(arrays[-1], wanted.get(pattern, before[0]), rtol=1e-6, atol=0):
        raise UserError(f"{kernel}: wrong result, not timed", EXIT_FAILED)


def check_peak(library: native.Library, kernel: str) -> None:
    """Run a peak kernel once: its sums must hold the number of steps. Raises UserError if they don't."""
    call, value, operations = bind_peak(library, kernel)
    call()
    if value[0] != STEPS or operations[0] < STEPS:
        raise UserError(f"{kernel}: its sums are {value[0]:g} after {STEPS} steps, not timed", EXIT_FAILED)


def _calibrated_s(with_repeats: Callable[[int], Callable[[], Any]]) -> float:
    """Seconds of one repeat, found alone and from a run that is long against reading the clock."""
    once_s = _best([with_repeats(1)], 2)
    repeats = round(CALIBRATION_S / once_s)
    return _best([with_repeats(repeats)], 2) / repeats if repeats > 1 else once_s


def _best(calls: Sequence[Callable[[], Any]], samples: int) -> float:
    """The least seconds of several tries in which all calls run, each on a thread and a core of its own."""
    return min(run_once(calls) for _ in range(samples))


def run_once(calls: Sequence[Callable[[], Any]]) -> float:
    """Seconds until all calls have run."""
    return _alone_s(calls[0]) if len(calls) == 1 else _together_s(calls)


def _alone_s(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _together_s(calls: Sequence[Callable[[], Any]]) -> float:
    """From the first start to the last end; sequences of native calls hold no lock while they run."""
    ready = threading.Barrier(len(calls))
    times = np.full((len(calls), 2), math.nan)
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_setaffinity") else []

    def run(number: int) -> None:
        if cores:
            os.sched_setaffinity(0, {cores[number % len(cores)]})  # of this thread alone
        ready.wait()
        times[number, 0] = time.perf_counter()
        calls[number]()
        times[number, 1] = time.perf_counter()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return float(times[:, 1].max() - times[:, 0].min())
