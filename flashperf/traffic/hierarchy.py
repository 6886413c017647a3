"""L1 per SM and a shared L2, fed by the traces of a call's launches in the order that a GPU might have. Pure.

Blocks go to SMs in turn, as many at a time as fit; in every step each resident block issues one request, from its
warps in turn. The emulator's own order, block after block, would find data in cache that other blocks push out on
a GPU: ``in_order`` computes that too, and the difference says how much the order matters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from flashperf.traffic.caches import COUNT, SECTORS_PER_LINE, SectorCache
from flashperf.traffic.trace import SECTOR_BYTES, Kind, Space, Trace


@dataclass(frozen=True)
class Shape:
    """What a GPU's caches look like to one launch: L1 beside the shared memory in use, blocks resident on an SM."""

    sms: int
    l1_bytes: int
    l2_bytes: int
    resident_blocks: int


@dataclass(frozen=True)
class CacheCounts:
    """Sectors of one launch that went each way. Hits are those of loads: stores go through L1 and stay in L2."""

    l1_sectors: int
    l1_hits: int
    l2_sectors: int
    l2_hits: int
    memory_read_bytes: int
    memory_written_bytes: int

    @property
    def l1_hit_rate(self) -> float:
        """Of the sectors that L1 was asked for; 0 if it was asked for none."""
        return self.l1_hits / self.l1_sectors if self.l1_sectors else 0.0

    @property
    def l2_hit_rate(self) -> float:
        """Of the sectors that L2 was asked to read: those that L1 missed or was not asked for; 0 if there were none."""
        return self.l2_hits / self.l2_sectors if self.l2_sectors else 0.0


def times(requests: np.ndarray, shape: Shape) -> np.ndarray:
    """The step in which each request is issued: within a block by barrier, then warps in turn; blocks in slots."""
    order = np.lexsort((requests["warp"], requests["place"], requests["epoch"], requests["block"]))
    blocks = requests["block"][order].astype(np.int64)
    count = np.bincount(blocks)
    within = np.arange(len(order)) - np.concatenate([[0], np.cumsum(count)])[blocks]
    slots = shape.sms * max(1, shape.resident_blocks)
    start = np.zeros(len(count), np.int64)
    for first in range(slots, len(count), slots):  # a block starts when the one before it in its slot is done
        these = np.arange(first, min(first + slots, len(count)))
        start[these] = start[these - slots] + count[these - slots]
    found = np.empty(len(order), np.int64)
    found[order] = start[blocks] + within
    return found


def _line_accesses(trace: Trace, order: np.ndarray, sms: int) -> Iterator[tuple[int, int, int, int]]:
    """(SM, kind, line, mask of sectors) of every line that a request touches, requests in this order."""
    requests = trace.requests
    lines = (trace.sectors // SECTORS_PER_LINE).tolist()
    bits = (1 << (trace.sectors % SECTORS_PER_LINE).astype(np.int64)).tolist()
    rows = zip(
        (requests["block"][order] % sms).tolist(),
        requests["kind"][order].tolist(),
        requests["first_sector"][order].tolist(),
        requests["sectors"][order].tolist(),
        strict=True,
    )
    for sm, kind, first, count in rows:
        line, mask = lines[first], 0
        for i in range(first, first + count):  # sectors are sorted
            if lines[i] != line:
                yield sm, kind, line, mask
                line, mask = lines[i], 0
            mask |= bits[i]
        yield sm, kind, line, mask


def _launch(trace: Trace, shape: Shape, l2: SectorCache, in_order: bool) -> CacheCounts:
    """One launch: L1 is empty at its start, L2 holds what earlier launches left."""
    chosen = np.flatnonzero(trace.requests["space"] == Space.GLOBAL)
    requests = trace.requests[chosen]
    if in_order:
        order = np.lexsort((requests["warp"], requests["place"], requests["epoch"], requests["block"]))
    else:
        order = np.lexsort((requests["block"], times(requests, shape)))
    l1 = [SectorCache(shape.l1_bytes) for _ in range(shape.sms)]
    l1_sectors = l1_hits = l2_sectors = l2_hits = read = 0
    written_before = l2.written_back
    for sm, kind, line, mask in _line_accesses(trace, chosen[order], shape.sms):
        if kind in (Kind.READ, Kind.COPY):
            missing = l1[sm].read(line, mask)
            l1_sectors += COUNT[mask]
            l1_hits += COUNT[mask & ~missing]
            mask = missing
            if not mask:
                continue
        elif kind == Kind.WRITE:
            l1[sm].write_through(line)
        if kind == Kind.WRITE:
            l2.write(line, mask)
            continue
        missing = l2.read(line, mask)
        l2_sectors += COUNT[mask]
        l2_hits += COUNT[mask & ~missing]
        read += COUNT[missing]
        if kind == Kind.ATOMIC:
            l2.write(line, mask)
    return CacheCounts(
        l1_sectors,
        l1_hits,
        l2_sectors,
        l2_hits,
        read * SECTOR_BYTES,
        (l2.written_back - written_before) * SECTOR_BYTES,
    )


def simulate(traces: Sequence[Trace], shapes: Sequence[Shape], in_order: bool = False) -> list[CacheCounts]:
    """The launches of one call, one after another, from a cold L2; ``shapes`` are of one GPU.

    What is dirty in L2 after the last launch counts as written by it. ``in_order``: blocks one after another.
    """
    if not traces:
        return []
    l2 = SectorCache(shapes[0].l2_bytes)
    found = [_launch(trace, shape, l2, in_order) for trace, shape in zip(traces, shapes, strict=True)]
    before = l2.written_back
    l2.flush()
    left = (l2.written_back - before) * SECTOR_BYTES
    last = found[-1]
    found[-1] = CacheCounts(
        last.l1_sectors,
        last.l1_hits,
        last.l2_sectors,
        last.l2_hits,
        last.memory_read_bytes,
        last.memory_written_bytes + left,
    )
    return found
