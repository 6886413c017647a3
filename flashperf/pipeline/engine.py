"""What the pipeline asks of a backend, and the two that need no GPU: the CPU, and a recorder that runs nothing.

The pipeline names kernels and hands over arrays; an engine binds them. Kernel names and signatures are the same
for every engine, so a mixture is lowered the same way whether it is measured, counted or predicted. Arrays have
the same shapes on every engine too: what lies in a packed weight is the engine's own affair (its ``pack_*``
kernels write it, its products read it). The GPU's engine is in ``cuda_engine``.
"""

from __future__ import annotations

import functools
import math
import mmap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from flashperf import native
from flashperf.dtypes import NUMPY_TYPES, aligned_copy, aligned_empty


@dataclass(frozen=True)
class PlannedCall:
    """One bound kernel call. ``key`` names kernel and shapes: calls with one key cost the same in isolation.

    arrays, scalars: what it was bound to, so that it can be bound again, as an eager framework does
    """

    key: str
    kernel: str
    run: Callable[[], None]
    arrays: tuple[Any, ...] = ()
    scalars: Mapping[str, float] = field(default_factory=dict)


def call_key(kernel: str, arrays: Sequence[np.ndarray]) -> str:
    """Kernel and array shapes, such as ``gemm_f32_packed(1x192,6x192x32,1x192)``."""
    return _key_of_shapes(kernel, tuple([array.shape for array in arrays]))


@functools.lru_cache(1 << 14)  # a program of a layer repeats its keys in every other
def _key_of_shapes(kernel: str, shapes: tuple[tuple[int, ...], ...]) -> str:
    return f"{kernel}({','.join('x'.join(map(str, shape)) for shape in shapes)})"


class Engine(Protocol):
    """Where arrays live and how kernels are bound."""

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        """An uninitialised array of a short dtype name."""

    def constant(self, shape: tuple[int, ...], dtype: str, make: Callable[[], np.ndarray]) -> Any:
        """An array filled with what ``make`` returns (NumPy, same shape and dtype)."""

    def prepare(self, kernel: str, *arrays: Any, **scalars: float) -> PlannedCall:
        """Bind a kernel; everything about the arguments is checked here and nowhere else."""

    def sequence(self, calls: Sequence[PlannedCall]) -> Any:
        """A callable that replays the calls in order; ``timed()`` gives nanoseconds of each."""

    def host(self, array: Any) -> np.ndarray:
        """The NumPy array through which the host writes ``array``, always the same: on a CPU the array itself."""

    def upload(self, array: Any) -> None:
        """Bring what was written to ``host(array)`` into the array, in order with the calls around it."""

    def read(self, array: Any) -> np.ndarray:
        """A NumPy copy of an array or a slice of one, after all work that was asked for before."""

    def wait(self) -> None:
        """Return when all work that was asked for is done; at once on a CPU."""

    # An engine may also have ``region(n_bytes)`` and ``typed(region, shape, dtype)``, memory of its own for the
    # levels of ``allocation`` beyond reused, and ``background()``, which runs sequences beside the caller, for
    # ``transfer=streamed_overlapped``. Those levels are refused without.


class CpuEngine:
    """NumPy arrays, native kernels, one thread."""

    def __init__(self, level: str | None = None) -> None:
        self.library = native.library(level)
        self.bind = self.library.prepare
        self._background: native.Background | None = None

    def empty(self, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        array = aligned_empty(shape, dtype)
        array.view(np.uint8)[...] = 0
        return array

    def constant(self, shape: tuple[int, ...], dtype: str, make: Callable[[], np.ndarray]) -> np.ndarray:
        array = aligned_copy(make(), dtype)
        if array.shape != shape:
            raise RuntimeError(f"a constant has shape {array.shape}, was declared {shape}")
        return array

    def prepare(self, kernel: str, *arrays: np.ndarray, **scalars: float) -> PlannedCall:
        call = self.bind(kernel, *arrays, **scalars)
        return PlannedCall(call_key(kernel, arrays), kernel, call, arrays, scalars)

    def background(self) -> native.Background:
        """The thread that makes copies beside the calls; one for all programs."""
        if self._background is None:
            self._background = native.Background()
        return self._background

    def region(self, n_bytes: int) -> np.ndarray:
        """Whole pages of memory, u8, mapped for this array alone; zeros."""
        return np.frombuffer(mmap.mmap(-1, n_bytes), np.uint8)

    def typed(self, region: np.ndarray, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        """The beginning of a region as an array."""
        count = math.prod(shape) * NUMPY_TYPES[dtype].itemsize
        return region[:count].view(NUMPY_TYPES[dtype]).reshape(shape)

    def sequence(self, calls: Sequence[PlannedCall]) -> native.Sequence:
        return native.Sequence([call.run for call in calls])  # type: ignore[misc]

    def host(self, array: np.ndarray) -> np.ndarray:
        return array

    def upload(self, array: np.ndarray) -> None:
        """Nothing to do: the host writes the array itself."""

    def read(self, array: np.ndarray) -> np.ndarray:
        return np.array(array)

    def wait(self) -> None:
        """Nothing to do: calls return when they are done."""


class RecordingEngine:
    """Runs nothing: arrays have shapes but no memory behind them, calls have keys. For counting and planning.

    ``memo`` keeps what operators were lowered to (see ``Lowering.once``).
    """

    def __init__(self) -> None:
        self.memo: dict[Any, Any] = {}

    def empty(self, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        # One element seen everywhere: a shape without its memory, whatever the model's size.
        return np.broadcast_to(np.zeros((), NUMPY_TYPES[dtype]), shape)

    def constant(self, shape: tuple[int, ...], dtype: str, make: Callable[[], np.ndarray]) -> np.ndarray:
        return self.empty(shape, dtype)

    def prepare(self, kernel: str, *arrays: np.ndarray, **scalars: float) -> PlannedCall:
        return PlannedCall(call_key(kernel, arrays), kernel, _nothing, arrays, scalars)

    def region(self, n_bytes: int) -> np.ndarray:
        return self.empty((n_bytes,), "u8")

    def typed(self, region: np.ndarray, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        return self.empty(shape, dtype)

    def sequence(self, calls: Sequence[PlannedCall]) -> Callable[[], None]:
        return _nothing

    def host(self, array: np.ndarray) -> np.ndarray:
        return array

    def upload(self, array: np.ndarray) -> None:
        """Nothing to do."""

    def read(self, array: np.ndarray) -> np.ndarray:
        return array

    def wait(self) -> None:
        """Nothing to do."""


def _nothing() -> None:
    """The run of a recorded call."""
