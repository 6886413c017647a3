"""Named activation buffers, in the three ways of the switch ``allocation``.

- reused: made once, on 64-byte boundaries
- fresh: mappings of their own, which the step's first calls return to the system and ask for again
- fixed_pool: blocks of one pool, each behind the last and a header of 16 bytes, on 16-byte boundaries: vector
  loads straddle cache lines

A buffer is known by its name and type. Smaller shapes are parts of the largest one, as what a caching
allocator hands out, so programs for many shapes need no more memory than the largest of them.
"""

from __future__ import annotations

import math
from typing import Any

from flashperf.dtypes import itemsize
from flashperf.errors import UserError
from flashperf.pipeline.engine import Engine

PAGE_BYTES = 4096
POOL_BYTES = 64 << 20  # a pool; where a mixture needs more, it takes a further one
_POOL_HEADER_BYTES = _POOL_ALIGN_BYTES = 16  # GGML_MEM_ALIGN is 16, and so is malloc's header on 64 bits

Key = tuple[str, str]


class Buffers:
    """Buffers of all mixtures of one cycle. ``allocated_bytes`` counts them."""

    def __init__(self, engine: Engine, allocation: str = "reused") -> None:
        if allocation != "reused" and not hasattr(engine, "region"):
            raise UserError(f"allocation={allocation} is not made for {type(engine).__name__}")
        self.engine, self.allocation = engine, allocation
        self.allocated_bytes = 0
        self._whole: dict[Key, tuple[Any, int]] = {}
        self._parts: dict[tuple[str, tuple[int, ...], str], Any] = {}
        self._siblings: dict[str, Buffers] = {allocation: self}
        self._pool: Any = None
        self._pool_used = 0

    def of(self, allocation: str) -> Buffers:
        """The buffers of another level, kept beside these."""
        if allocation not in self._siblings:
            self._siblings[allocation] = Buffers(self.engine, allocation)
            self._siblings[allocation]._siblings = self._siblings
        return self._siblings[allocation]

    def get(self, name: str, shape: tuple[int, ...], dtype: str) -> Any:
        """The buffer of this name and dtype in this shape; what it holds does not outlast the step."""
        key = (name, shape, dtype)
        if key not in self._parts:
            self._parts[key] = self._part(name, shape, dtype)
        return self._parts[key]

    def state(self, name: str, shape: tuple[int, ...], dtype: str) -> Any:
        """A buffer that outlasts the step and has one shape: the KV cache, the mask that the host writes."""
        if self.allocation == "fresh":
            return self.of("reused").state(name, shape, dtype)
        key = (name, shape, dtype)
        if key not in self._parts:
            self.allocated_bytes += math.prod(shape) * itemsize(dtype)
            self._parts[key] = (
                self.engine.empty(shape, dtype)
                if self.allocation == "reused"
                else self._typed(self._block(math.prod(shape) * itemsize(dtype)), shape, dtype)
            )
        return self._parts[key]

    def pages(self, name: str, dtype: str, n_bytes: int) -> Any:
        """The whole pages, u8, that the first ``n_bytes`` of a fresh buffer lie in."""
        region, _ = self._whole[name, dtype]
        return region[: -(-n_bytes // PAGE_BYTES) * PAGE_BYTES]

    def _part(self, name: str, shape: tuple[int, ...], dtype: str) -> Any:
        count = math.prod(shape)
        whole, size = self._whole.get((name, dtype), (None, 0))
        if count > size:
            whole = self._make(count, dtype)
            self._whole[name, dtype] = whole, count
            self.allocated_bytes += count * itemsize(dtype)
        if self.allocation == "reused":
            return whole[:count].reshape(shape)
        return self._typed(whole, shape, dtype)

    def _make(self, count: int, dtype: str) -> Any:
        n_bytes = count * itemsize(dtype)
        if self.allocation == "reused":
            return self.engine.empty((count,), dtype)
        if self.allocation == "fixed_pool":
            return self._block(n_bytes)
        return self.engine.region(-(-n_bytes // PAGE_BYTES) * PAGE_BYTES)  # type: ignore[attr-defined]

    def _typed(self, region: Any, shape: tuple[int, ...], dtype: str) -> Any:
        return self.engine.typed(region, shape, dtype)  # type: ignore[attr-defined]

    def _block(self, n_bytes: int) -> Any:
        """The next block of the pool."""
        begin = -(-self._pool_used // _POOL_ALIGN_BYTES) * _POOL_ALIGN_BYTES + _POOL_HEADER_BYTES
        if self._pool is None or begin + n_bytes > self._pool.shape[0]:
            wanted = max(POOL_BYTES, n_bytes + _POOL_HEADER_BYTES)
            self._pool = self.engine.region(wanted)  # type: ignore[attr-defined]
            begin = _POOL_HEADER_BYTES
        self._pool_used = begin + n_bytes
        return self._pool[begin : begin + n_bytes]
