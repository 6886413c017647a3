"""Cold caches of a CPU: a pass over other bytes, then every array of the call is flushed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np

from flashperf import native
from flashperf.blocks import CacheSweep
from flashperf.dtypes import aligned_empty
from flashperf.environment import last_level_cache_bytes
from flashperf.roofs.points import COLD
from flashperf.roofs.subject import bind_stream, run_once

CHECKED_BYTES, CHECKS = 4 << 20, 3


class ColdCaches:
    """Empties the caches before a call that reads and writes known arrays.

    A pass over other bytes empties the inner caches and the translations of addresses; of a large last level that
    is shared with other machines it may leave most, so the arrays are flushed as well. ``state`` is what the
    record says: "cold", or that of the pass alone where the processor lets no program flush ("cold-256MiB").
    """

    def __init__(self) -> None:
        self._sweep = CacheSweep(last_level_cache_bytes())
        self._can_flush = _flush(np.zeros(1, np.uint8))
        self.state = COLD if self._can_flush else self._sweep.state

    def empty(self, arrays: Iterable[np.ndarray]) -> None:
        """Sweep, then flush the bytes of the arrays."""
        self._sweep()
        if self._can_flush:
            for array in arrays:
                _flush(array)

    def load_rate(self) -> float:
        """Bytes/s of plain loads from CHECKED_BYTES that this has emptied: the median of a few."""
        part = aligned_empty((CHECKED_BYTES // 4,), "f32")
        part.fill(1.0)
        call, moved = bind_stream(native.library(), "load", part, 1)
        seconds = []
        for _ in range(CHECKS):
            call()
            self.empty([part])
            seconds.append(run_once([call]))
        return moved / float(np.median(seconds))


@contextmanager
def bound_arrays() -> Iterator[list[np.ndarray]]:
    """The arrays that kernels are bound to inside the block, also those that a mechanism makes for itself.

    ``prepare`` is exchanged meanwhile, rather than taught to note them: some variants bind in the timed call.
    """
    found: list[np.ndarray] = []
    prepare = native.Library.prepare

    def noting(self: native.Library, kernel: str, *arrays: np.ndarray, **scalars: float) -> native.Call:
        found.extend(arrays)
        return prepare(self, kernel, *arrays, **scalars)

    native.Library.prepare = noting  # type: ignore[method-assign]
    try:
        yield found
    finally:
        native.Library.prepare = prepare  # type: ignore[method-assign]


def _flush(array: np.ndarray) -> bool:
    """Take the bytes of an array out of every cache; False where the processor can't.

    An array that isn't contiguous is left: no kernel is bound to one.
    """
    done = np.zeros(1, np.int64)
    if array.nbytes and array.flags.c_contiguous:
        native.prepare("flush_lines", array.reshape(-1).view(np.uint8), done)()
    return bool(done[0])
