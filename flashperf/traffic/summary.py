"""What the requests of a trace add up to: sectors per request, bytes moved, bank conflicts. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flashperf.traffic.trace import SECTOR_BYTES, Kind, Space, Trace


@dataclass(frozen=True)
class GlobalTraffic:
    """Requests to global memory of one direction.

    sectors: of 32 bytes that the requests touched; least_sectors: that their different bytes would have filled
    """

    requests: int = 0
    sectors: int = 0
    least_sectors: int = 0

    @property
    def sectors_per_request(self) -> float:
        """As Nsight Compute counts it: 4 for 32 lanes that read 4 bytes each, side by side; 32 at worst."""
        return self.sectors / self.requests if self.requests else 0.0

    @property
    def moved_bytes(self) -> int:
        """Between an SM and its L1, and beyond where that misses."""
        return self.sectors * SECTOR_BYTES

    @property
    def efficiency(self) -> float:
        """The part of the sectors that would have been needed; 1 is coalesced."""
        return self.least_sectors / self.sectors if self.sectors else 1.0

    def __add__(self, other: GlobalTraffic) -> GlobalTraffic:
        return GlobalTraffic(*(getattr(self, n) + getattr(other, n) for n in self.__dataclass_fields__))


@dataclass(frozen=True)
class SharedTraffic:
    """Requests to shared memory. wavefronts: passes over the banks; least_wavefronts: without any conflict."""

    requests: int = 0
    wavefronts: int = 0
    least_wavefronts: int = 0

    @property
    def conflict_degree(self) -> float:
        """How many times longer than without conflicts: 1 is free of them, 32 the worst."""
        return self.wavefronts / self.least_wavefronts if self.least_wavefronts else 1.0

    def __add__(self, other: SharedTraffic) -> SharedTraffic:
        return SharedTraffic(*(getattr(self, n) + getattr(other, n) for n in self.__dataclass_fields__))


@dataclass(frozen=True)
class Traffic:
    """One kernel, over all of its launches in a call.

    read_bytes, written_bytes: different bytes per launch, summed: the compulsory traffic, what Cost declares
    """

    kernel: str
    launches: int
    read_bytes: int
    written_bytes: int
    loads: GlobalTraffic
    stores: GlobalTraffic
    atomics: GlobalTraffic
    shared: SharedTraffic

    def __add__(self, other: Traffic) -> Traffic:
        numbers = list(self.__dataclass_fields__)[1:]
        return Traffic(self.kernel, *(getattr(self, n) + getattr(other, n) for n in numbers))


_LOADS = (Kind.READ, Kind.COPY, Kind.COPY_PAST_L1)


def _global(requests: np.ndarray, *kinds: Kind) -> GlobalTraffic:
    mine = requests[(requests["space"] == Space.GLOBAL) & np.isin(requests["kind"], kinds)]
    least = -(-mine["bytes"].astype(np.int64) // SECTOR_BYTES)
    return GlobalTraffic(len(mine), int(mine["sectors"].sum()), int(least.sum()))


def _shared(requests: np.ndarray) -> SharedTraffic:
    mine = requests[requests["space"] == Space.SHARED]
    return SharedTraffic(
        len(mine),
        int(mine["wavefronts"].sum(dtype=np.int64)),
        int(mine["least_wavefronts"].sum(dtype=np.int64)),
    )


def summarise(trace: Trace) -> Traffic:
    """The totals of one launch."""
    return Traffic(
        kernel=trace.launch.kernel,
        launches=1,
        read_bytes=trace.read_bytes,
        written_bytes=trace.written_bytes,
        loads=_global(trace.requests, *_LOADS),
        stores=_global(trace.requests, Kind.WRITE),
        atomics=_global(trace.requests, Kind.ATOMIC),
        shared=_shared(trace.requests),
    )


@dataclass(frozen=True)
class LineTraffic:
    """One access in the source: ``file.cu:12``, what it does, and its totals."""

    line: str
    what: str  # "load", "store", "atomic", "shared load", "shared store"
    loads: GlobalTraffic
    shared: SharedTraffic

    @property
    def excess(self) -> int:
        """Sectors or wavefronts more than the least: where to look first."""
        return (
            self.loads.sectors
            - self.loads.least_sectors
            + self.shared.wavefronts
            - self.shared.least_wavefronts
        )


def by_line(trace: Trace) -> list[LineTraffic]:
    """Every access of a launch by its place in the source, the most wasteful first."""
    found = []
    for number, line in enumerate(trace.lines()):
        mine = trace.requests[trace.requests["instruction"] == number]
        if not len(mine):
            continue
        kind, space = Kind(mine["kind"][0]), Space(mine["space"][0])
        what = "atomic" if kind == Kind.ATOMIC else "store" if kind == Kind.WRITE else "load"
        prefix = "shared " if space == Space.SHARED else ""
        found.append(LineTraffic(line, prefix + what, _global(mine, *Kind), _shared(mine)))
    return sorted(found, key=lambda one: -one.excess)
