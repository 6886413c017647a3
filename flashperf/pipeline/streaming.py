"""Weights that are brought in before each use: the switch ``transfer``.

What products read are staging buffers, as on a GPU whose weights live in host memory. The copies are calls of
the program like any other:

- streamed: those of a layer stand before its first call
- streamed_overlapped: those of a layer are made by a second thread while the layer before computes, with two
  sets of staging buffers in turn
- streamed_tiles: those of a product stand before it, 64 KiB each

Matrices are streamed; norms, scales and the embedding table, of which a step reads a few rows, stay. On a CPU
both sides are the same memory: a stand-in for a link.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flashperf.dtypes import itemsize
from flashperf.pipeline.buffers import Buffers
from flashperf.pipeline.storage import Int8Weight, WeightStore

if TYPE_CHECKING:
    from flashperf.pipeline.lowering import Lowering

TILE_BYTES = 64 << 10


class StagedWeights(WeightStore):
    """A weight store whose matrices are staged copies; asking for one emits its copy, once a segment."""

    def __init__(self, store: WeightStore, buffers: Buffers, transfer: str, lower: Lowering) -> None:
        self.engine, self.calibration = store.engine, store.calibration
        self._source, self._made = store._source, store._made
        self._store, self._buffers, self._transfer, self._lower = store, buffers, transfer, lower
        self._staged: dict[int, Any] = {}
        self._set = 0

    def begin(self, number: int) -> None:
        """A segment begins: its weights must come in anew."""
        self._staged = {}
        self._set = number % 2 if self._transfer == "streamed_overlapped" else 0

    def plain(self, name: str, dtype: str, columns: slice) -> Any:
        return self._stage(self._store.plain(name, dtype, columns), dtype)

    def packed(self, name: str, dtype: str, columns: slice) -> Any:
        return self._stage(self._store.packed(name, dtype, columns), dtype)

    def int8_plain(self, name: str, columns: slice) -> Int8Weight:
        return self._stage_int8(self._store.int8_plain(name, columns))

    def int8_packed(self, name: str, columns: slice) -> Int8Weight:
        return self._stage_int8(self._store.int8_packed(name, columns))

    def w8_packed(self, name: str, columns: slice) -> Int8Weight:
        return self._stage_int8(self._store.w8_packed(name, columns))

    def _stage_int8(self, weight: Int8Weight) -> Int8Weight:
        return Int8Weight(self._stage(weight.values, "i8"), weight.column_sums, weight.scale)

    def _stage(self, source: Any, dtype: str) -> Any:
        if id(source) not in self._staged:
            name = f"staged{self._set}.{len(self._staged)}"
            staged = self._buffers.state(name, source.shape, dtype)
            self._staged[id(source)] = staged
            self._copy(source.reshape(-1), staged.reshape(-1), dtype)
        return self._staged[id(source)]

    def _copy(self, source: Any, staged: Any, dtype: str) -> None:
        segment, kernel = self._lower.segments[-1], f"stage_{dtype}"
        if self._transfer == "streamed_tiles":
            tile = TILE_BYTES // itemsize(dtype)
            for begin in range(0, source.shape[0], tile):
                part = slice(begin, min(begin + tile, source.shape[0]))
                segment.calls.append(self._lower.bind(kernel, source[part], staged[part]))
        else:
            segment.copies.append(self._lower.bind(kernel, source, staged))
