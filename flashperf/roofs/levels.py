"""The caches of the first core, and how much of each a kernel should touch to measure it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import psutil

from flashperf.environment import usable_cores
from flashperf.roofs.model import DRAM

#: Where the system says nothing: what common server cores have.
ASSUMED = (("L1", 32 << 10, 1), ("L2", 1 << 20, 1), ("L3", 32 << 20, 0))
LARGEST_BYTES = 2 << 30
SMALLEST_MEMORY_BYTES = 64 << 20
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "": 1}


@dataclass(frozen=True)
class CacheLevel:
    """A cache that holds data: its size in bytes and how many of our cores share it."""

    name: str
    size_bytes: int
    shared_by: int


def cache_levels(root: Path = Path("/")) -> tuple[CacheLevel, ...]:
    """Data and unified caches from sysfs, innermost first; empty where the system doesn't say."""
    found: dict[int, CacheLevel] = {}
    for folder in sorted((root / "sys/devices/system/cpu/cpu0/cache").glob("index[0-9]*")):
        kind, level, size, shared = (
            _text(folder / name) for name in ("type", "level", "size", "shared_cpu_list")
        )
        match = re.fullmatch(r"(\d+)([KMG]?)", size)
        if kind in ("Data", "Unified") and level.isdigit() and match:
            size_bytes = int(match.group(1)) * _UNITS[match.group(2)]
            found[int(level)] = CacheLevel(f"L{level}", size_bytes, _count(shared))
    return tuple(found[level] for level in sorted(found))


def assumed_levels() -> tuple[CacheLevel, ...]:
    """Sizes to go by where the system gives none."""
    return tuple(CacheLevel(name, size, shared or usable_cores()) for name, size, shared in ASSUMED)


@dataclass(frozen=True)
class WorkingSet:
    """What to touch to measure a level: bytes of one thread. ``level_bytes``: its capacity, 0 for memory."""

    name: str
    level_bytes: int
    thread_bytes: int


def working_sets(
    levels: tuple[CacheLevel, ...], threads: int, available_bytes: int | None = None
) -> list[WorkingSet]:
    """One working set per level, well inside it and well outside the one before; memory last.

    Half a level at most (the rest of it holds code, page tables, other programs), eight times the level before
    where that is less: the far end of a large shared cache belongs to others. Memory is touched over twice the
    last cache, at most an eighth of what is free.
    """
    sets: list[WorkingSet] = []
    inner_bytes = 0
    for level in levels:
        wanted = min(level.size_bytes // 2, 8 * inner_bytes) if inner_bytes else level.size_bytes // 2
        wanted = min(max(wanted, 2 * inner_bytes), level.size_bytes * 3 // 4)
        sharing = min(threads, level.shared_by)
        each = min(wanted, level.size_bytes // 2 // sharing) if sharing > 1 else wanted
        sets.append(WorkingSet(level.name, level.size_bytes, each))
        inner_bytes = level.size_bytes
    free = psutil.virtual_memory().available if available_bytes is None else available_bytes
    outside = min(max(2 * inner_bytes, SMALLEST_MEMORY_BYTES), LARGEST_BYTES, free // 8)
    sets.append(WorkingSet(DRAM, 0, outside // threads))
    return sets


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _count(cpu_list: str) -> int:
    """How many CPUs a list such as ``0-3,8`` names; at least 1."""
    ends = [part.partition("-")[::2] for part in cpu_list.split(",") if part[:1].isdigit()]
    return max(1, sum(int(last or first) - int(first) + 1 for first, last in ends))
