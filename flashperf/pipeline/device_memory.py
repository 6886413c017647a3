"""What the pipeline does with a device's memory beside computing: weights brought in, memory asked for anew.

These have kernel names like everything that a program calls (``stage_*``, ``fresh_pages``); none can be part of a
graph, so they stand between the graphs of a program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from flashperf.pipeline.device import Device


class HostWeights:
    """Copies of device arrays in host memory: what weights that are streamed in are streamed from.

    Pageable by default, as the modules of a framework are that were offloaded; pinned for copies beside the calls,
    since a device can only copy from those by itself.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._pageable: dict[int, tuple[Any, np.ndarray]] = {}
        self._pinned: dict[int, np.ndarray] = {}

    def pageable(self, key: int, array: Any) -> np.ndarray:
        """The host's copy of an array, made on first use; ``key`` stands for its memory."""
        if key not in self._pageable:
            self._pageable[key] = (array, self._device.copy_out(array))
        return self._pageable[key][1]

    def pinned(self, key: int, array: Any) -> np.ndarray:
        """The same in pinned memory, as bytes."""
        if key not in self._pinned:
            values = self.pageable(key, array).reshape(-1).view(np.uint8)
            self._pinned[key] = self._device.pinned(values.shape, "u8")
            self._pinned[key][...] = values
        return self._pinned[key]


class MemoryCall:
    """A call of the host's that belongs to a program: it counts like a kernel's, and no graph can hold it."""

    def __init__(self, action: Callable[[], None], beside: Callable[[], None] | None = None) -> None:
        self._action, self._beside = action, beside
        self.count = 0

    def __call__(self) -> None:
        self.count += 1
        self._action()

    def beside(self) -> None:
        """On the second stream. Raises TypeError for a call that can only be made in turn."""
        if self._beside is None:
            raise TypeError("only copies of weights can be made beside the calls")
        self.count += 1
        self._beside()


class Beside:
    """The second stream as what runs sequences beside the caller: ``submit``, then ``wait`` before their results."""

    def __init__(self, device: Device) -> None:
        self._device = device

    def submit(self, sequence: Any) -> None:
        """Enqueue copies behind everything that was enqueued before: their targets are free by then."""
        self._device.fork()
        for run in sequence.runs:
            run.beside()

    def wait(self) -> None:
        """What is enqueued from now on finds the copies done; the host doesn't wait."""
        self._device.join()

    def span_ns(self) -> tuple[int, int]:
        """Nothing: when copies began and ended isn't known without waiting for them."""
        return 0, 0


def memory_call(
    device: Device, weights: HostWeights, kernel: str, arrays: Sequence[Any], scalars: Mapping[str, float]
) -> MemoryCall | None:
    """The call behind ``stage_*`` or ``fresh_pages``; None for a kernel that computes."""
    if kernel.startswith("stage_"):
        return _stage(device, weights, *arrays)
    if kernel == "fresh_pages":
        return _fresh(device, *arrays)
    return None


def _stage(device: Device, weights: HostWeights, source: Any, staged: Any) -> MemoryCall:
    key = _address(source)
    pageable = weights.pageable(key, source)
    as_bytes = staged.reshape(-1).view(np.uint8)
    return MemoryCall(
        lambda: device.copy_in(staged, pageable),
        lambda: device.copy_beside(as_bytes, weights.pinned(key, source)),
    )


def _fresh(device: Device, region: Any) -> MemoryCall:
    """As much memory as the buffer has is asked of the driver and given back.

    A stand-in for a buffer that lies somewhere else in every step: the kernels, and a graph of them, keep theirs.
    """

    def ask() -> None:
        memory = device.allocate(region.nbytes, "fresh")
        device.free(memory)

    return MemoryCall(ask)


def _address(array: Any) -> int:
    """Where an array begins; NumPy and CuPy."""
    return int(array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr)
