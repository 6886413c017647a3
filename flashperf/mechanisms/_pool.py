"""A first-fit pool, as numbers: where blocks lie, and what is lost to holes. Nothing is allocated."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


class PoolFullError(RuntimeError):
    """No hole is large enough, though there may be enough room in all."""


class FirstFit:
    """Blocks in a pool of ``size`` bytes; each goes into the first hole that holds it, holes that touch are joined."""

    def __init__(self, size: int, alignment: int = 16) -> None:
        self.size, self.alignment = size, alignment
        self._holes: list[tuple[int, int]] = [(0, size)]  # (begin, end), in order
        self._blocks: dict[int, int] = {}

    def allocate(self, n_bytes: int) -> int:
        """Offset of a new block. Raises PoolFullError."""
        wanted = max(1, -(-n_bytes // self.alignment)) * self.alignment
        for number, (begin, end) in enumerate(self._holes):
            if end - begin >= wanted:
                self._holes[number : number + 1] = [(begin + wanted, end)] if end - begin > wanted else []
                self._blocks[begin] = begin + wanted
                return begin
        raise PoolFullError(
            f"{wanted} bytes do not fit: {self.free} are free, at most {self.largest} together"
        )

    def release(self, offset: int) -> None:
        """Give a block back. Raises KeyError for an offset that is none's."""
        merged: list[tuple[int, int]] = []
        for begin, end in sorted([*self._holes, (offset, self._blocks.pop(offset))]):
            if merged and merged[-1][1] == begin:
                merged[-1] = merged[-1][0], end
            else:
                merged.append((begin, end))
        self._holes = merged

    @property
    def free(self) -> int:
        """Bytes in holes."""
        return sum(end - begin for begin, end in self._holes)

    @property
    def largest(self) -> int:
        """Bytes of the largest hole."""
        return max((end - begin for begin, end in self._holes), default=0)

    @property
    def fragmentation(self) -> float:
        """The share of the free bytes that lies outside the largest hole; 0 where nothing is free."""
        return 1 - self.largest / self.free if self.free else 0.0


@dataclass(frozen=True)
class Fragmentation:
    """What a run of allocations of varied sizes did to a pool.

    used: bytes in use when the first request failed, over the pool's size; 1.0 would be a full pool
    fragmentation: mean of ``FirstFit.fragmentation`` over all steps
    failed: requests that did not fit though enough bytes were free
    """

    used: float
    fragmentation: float
    failed: int


def churn(smallest: int, largest: int, live: int, steps: int, seed: int) -> Fragmentation:
    """Allocate and release blocks of ``smallest`` to ``largest`` bytes at random, ``live`` at a time.

    The pool holds the mean of ``live`` blocks and a tenth more; sizes are uniform in their logarithm, as lengths of
    requests are. What doesn't fit is left out.
    """
    rng = np.random.default_rng(seed)
    sizes = np.exp(rng.uniform(np.log(smallest), np.log(largest), steps)).astype(int)
    pool = FirstFit(int(1.1 * live * sizes.mean()))
    held: list[int] = []
    used, failed, lost = 1.0, 0, []
    for size in sizes.tolist():
        if len(held) == live:
            pool.release(held.pop(int(rng.integers(live))))
        try:
            held.append(pool.allocate(size))
        except PoolFullError:
            if pool.free >= size:
                used = used if failed else 1 - pool.free / pool.size
                failed += 1
            if held:
                pool.release(held.pop(int(rng.integers(len(held)))))
        lost.append(pool.fragmentation)
    return Fragmentation(used, float(np.mean(lost)), failed)
