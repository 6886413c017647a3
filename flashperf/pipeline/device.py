"""What an engine asks of a device: memory, copies, order, graphs. And the stand-in for one, on the host.

A device runs what is enqueued on one stream, in order, while the host goes on; ``record`` turns what is enqueued
into a graph that is launched as one. The GPU's own is in ``cupy_device``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from flashperf.dtypes import NUMPY_TYPES, aligned_empty

Run = Callable[[], None]
#: How memory is had: asked of the driver on every call, taken from a pool that keeps what was freed, or made once.
ALLOCATIONS = ("fresh", "pool", "reused")


class CaptureError(RuntimeError):
    """Something that a graph can't hold was asked for while one was recorded."""


class Device(Protocol):
    """One device, one stream, and a second one for copies beside it."""

    name: str

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        """An array of zeros of a short dtype name, aligned to 256 bytes; from a pool."""

    def allocate(self, n_bytes: int, how: str) -> Any:
        """Memory, u8, not set to anything: ``how`` is one of ALLOCATIONS but "reused", which asks for nothing."""

    def free(self, memory: Any) -> None:
        """Give back what ``allocate`` gave; fresh memory goes to the driver, which waits for the device."""

    def pinned(self, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        """Zeros in host memory that the device can read by itself."""

    def copy_in(self, target: Any, source: np.ndarray) -> None:
        """Enqueue host -> device. From ``pinned`` memory the device copies while the host goes on, and the source
        must stay as it is until then. Other (pageable) memory is copied through a staging buffer of the driver:
        the host waits, and a graph can't hold it.
        """

    def copy_beside(self, target: Any, source: np.ndarray) -> None:
        """As ``copy_in`` from pinned memory, on the second stream."""

    def fork(self) -> None:
        """What is enqueued on the second stream from now on waits for what the first holds now."""

    def join(self) -> None:
        """What is enqueued on the first stream from now on waits for what the second holds now."""

    def copy_out(self, array: Any) -> np.ndarray:
        """A NumPy copy, after all that was enqueued."""

    def wait(self) -> None:
        """Return when all that was enqueued is done."""

    def record(self, enqueue: Run) -> Run:
        """A graph of what ``enqueue`` enqueues; it is not run. Raises CaptureError for what no graph can hold."""

    def time_each(self, runs: Sequence[Run]) -> np.ndarray:
        """Run them in order; nanoseconds of each on the device, int64."""

    def flush_cache(self) -> None:
        """Empty the device's L2 by writing twice its size."""

    def used_bytes(self) -> int:
        """Device memory that this process has taken."""


class HostDevice:
    """Stands in for a GPU where there is none: NumPy arrays, everything done at once. For correctness only.

    What a graph can't hold is refused as on a GPU, so that a program that can't be captured is found here.
    """

    name = "emulator"

    def __init__(self) -> None:
        self._pinned: list[tuple[int, int]] = []
        self._recording = False
        self.allocated_bytes = 0
        #: How often memory was asked for anew: what a profiler would show as cudaMalloc.
        self.allocations = 0
        self._pool: dict[int, list[np.ndarray]] = {}
        self._forked = self._beside = False

    def empty(self, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        self._refuse("memory")
        array = aligned_empty(shape, dtype, 256)
        array.view(np.uint8)[...] = 0
        self.allocated_bytes += array.nbytes
        return array

    def allocate(self, n_bytes: int, how: str) -> np.ndarray:
        self._refuse("memory")
        kept = self._pool.get(n_bytes, []) if how == "pool" else []
        if kept:
            return kept.pop()
        self.allocations += 1
        array = aligned_empty((n_bytes,), "u8", 256)
        array[...] = 0xFF  # not set to anything: NaN, so that a read before the first write shows
        return array

    def free(self, memory: np.ndarray) -> None:
        self._refuse("memory")
        self._pool.setdefault(memory.nbytes, []).append(memory)

    def pinned(self, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        array = aligned_empty(shape, dtype, 256)
        array.view(np.uint8)[...] = 0
        self._pinned.append((array.ctypes.data, array.ctypes.data + array.nbytes))
        return array

    def copy_in(self, target: np.ndarray, source: np.ndarray) -> None:
        if not self.is_pinned(source):
            self._refuse("a copy from pageable memory")
        target[...] = source

    def is_pinned(self, source: np.ndarray) -> bool:
        """Whether the memory came from ``pinned``."""
        start = source.ctypes.data
        return any(low <= start and start + source.nbytes <= high for low, high in self._pinned)

    def copy_beside(self, target: np.ndarray, source: np.ndarray) -> None:
        if not self.is_pinned(source):
            raise ValueError("only pinned memory can be copied beside the calls")
        if not self._forked:
            raise RuntimeError(
                "a copy beside the calls that doesn't wait for those that use its target: fork first"
            )
        self._beside = True
        target[...] = source

    def fork(self) -> None:
        """All is done at once here; that it was asked for is what is checked."""
        self._forked = True

    def join(self) -> None:
        """All is done at once here; that it was asked for is what is checked."""
        self._forked = self._beside = False

    def copy_out(self, array: np.ndarray) -> np.ndarray:
        self._refuse("a copy to the host that is waited for")
        self._check_joined()
        return np.array(array)

    def wait(self) -> None:
        self._refuse("waiting")
        self._check_joined()

    def _check_joined(self) -> None:
        if self._beside:
            raise RuntimeError("copies beside the calls that nothing waits for: join after them")

    def record(self, enqueue: Run) -> Run:
        """What was enqueued, run again. The dry run that a capture is would change arrays here, so it is left out."""

        def replay() -> None:
            self._recording = True
            try:
                enqueue()
            finally:
                self._recording = False

        return replay

    def time_each(self, runs: Sequence[Run]) -> np.ndarray:
        times = np.empty(len(runs), np.int64)
        for number, run in enumerate(runs):
            begin = time.perf_counter_ns()
            run()
            times[number] = time.perf_counter_ns() - begin
        return times

    def flush_cache(self) -> None:
        """Nothing to do: nothing is timed here."""

    def used_bytes(self) -> int:
        return self.allocated_bytes

    def _refuse(self, what: str) -> None:
        if self._recording:
            raise CaptureError(f"a graph can't hold {what}: do it before or between graphs")


def typed(memory: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """The beginning of u8 memory as an array of a short dtype name; NumPy and CuPy alike."""
    kind = NUMPY_TYPES[dtype]
    return memory[: math.prod(shape) * kind.itemsize].view(kind).reshape(shape)
