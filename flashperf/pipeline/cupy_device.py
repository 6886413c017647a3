"""The GPU as a device, through CuPy: one stream of its own, pinned host memory, graphs, events.

Never run on a GPU so far.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from flashperf.dtypes import NUMPY_TYPES
from flashperf.pipeline.device import CaptureError, Run

_HOST_TO_DEVICE = 1  # cudaMemcpyHostToDevice
_FLUSH_FACTOR = 2  # of the L2


class CupyDevice:
    """CUDA device 0. Its stream becomes this thread's current one, so that kernels launch on it."""

    def __init__(self) -> None:
        import cupy

        self._cupy = cupy
        device = cupy.cuda.Device()
        properties = cupy.cuda.runtime.getDeviceProperties(device.id)
        self.name = properties["name"].decode()
        self.l2_bytes = int(properties["l2CacheSize"])
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.stream.use()
        self._flush: Any = None
        self._beside = cupy.cuda.Stream(non_blocking=True)

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        return self._cupy.zeros(shape, NUMPY_TYPES[dtype])

    def allocate(self, n_bytes: int, how: str) -> Any:
        """``fresh`` is cudaMalloc, ``pool`` CuPy's caching allocator, as torch has one."""
        cupy = self._cupy
        if how == "fresh":
            pointer = cupy.cuda.MemoryPointer(cupy.cuda.Memory(n_bytes), 0)
        else:
            pointer = cupy.get_default_memory_pool().malloc(n_bytes)
        return cupy.ndarray((n_bytes,), np.uint8, pointer)

    def free(self, memory: Any) -> None:
        """The last reference decides: cudaFree for fresh memory. The caller's own must go with this call."""
        del memory

    def pinned(self, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        import cupyx

        return cupyx.zeros_pinned(shape, NUMPY_TYPES[dtype])

    def copy_in(self, target: Any, source: np.ndarray) -> None:
        self._copy(target, source, self.stream)

    def copy_beside(self, target: Any, source: np.ndarray) -> None:
        self._copy(target, source, self._beside)

    def _copy(self, target: Any, source: np.ndarray, stream: Any) -> None:
        if not source.flags.c_contiguous or source.nbytes != target.nbytes:
            raise ValueError(f"a copy of {source.shape} needs a contiguous source of {target.nbytes} bytes")
        self._cupy.cuda.runtime.memcpyAsync(
            target.data.ptr, source.ctypes.data, source.nbytes, _HOST_TO_DEVICE, stream.ptr
        )

    def fork(self) -> None:
        self._beside.wait_event(self.stream.record())

    def join(self) -> None:
        self.stream.wait_event(self._beside.record())

    def copy_out(self, array: Any) -> np.ndarray:
        copied = self._cupy.asnumpy(array, stream=self.stream)
        self.stream.synchronize()
        return copied

    def wait(self) -> None:
        self.stream.synchronize()

    def record(self, enqueue: Run) -> Run:
        self.stream.synchronize()  # nothing of before may become part of the capture
        self.stream.begin_capture()
        try:
            enqueue()
        except Exception as error:
            self._abandon()
            raise CaptureError(f"a graph can't hold this: {error}") from error
        graph = self.stream.end_capture()
        graph.upload(self.stream)
        return lambda: graph.launch(self.stream)

    def _abandon(self) -> None:
        """End a capture that failed; that it is invalid was said already."""
        try:
            self.stream.end_capture()
        except self._cupy.cuda.runtime.CUDARuntimeError:
            return

    def time_each(self, runs: Sequence[Run]) -> np.ndarray:
        cupy = self._cupy
        events = [cupy.cuda.Event() for _ in range(len(runs) + 1)]
        events[0].record(self.stream)
        for run, event in zip(runs, events[1:], strict=True):
            run()
            event.record(self.stream)
        events[-1].synchronize()
        pairs = itertools.pairwise(events)
        return np.array([round(cupy.cuda.get_elapsed_time(a, b) * 1e6) for a, b in pairs], np.int64)

    def flush_cache(self) -> None:
        if self._flush is None:
            self._flush = self._cupy.empty(_FLUSH_FACTOR * self.l2_bytes, np.uint8)
        self._flush.fill(1)

    def used_bytes(self) -> int:
        free, total = self._cupy.cuda.runtime.memGetInfo()
        return max(int(total - free), int(self._cupy.get_default_memory_pool().total_bytes()))
