"""Runs launches on the emulator and records every access to global and shared memory, as requests of warps.

A request is what one instruction of one warp asks of memory: the hardware serves it in 32-byte sectors (global)
or in wavefronts over 32 banks of 4 bytes (shared). The recorder is csrc/emulator/trace.cpp.
"""

from __future__ import annotations

import ctypes
import itertools
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

import numpy as np

from flashperf.emulator import Launch, Module

SECTOR_BYTES = 32
_ALIGNMENT_BYTES = 512  # of cudaMalloc; 256 are promised


class Kind(IntEnum):
    """What a request does (AccessKind in csrc/emulator/trace.h)."""

    READ = 0
    WRITE = 1
    ATOMIC = 2
    COPY = 3  # cp.async through L1
    COPY_PAST_L1 = 4  # cp.async.cg


class Space(IntEnum):
    """Which memory a request is for."""

    GLOBAL = 0
    SHARED = 1


#: ``Request`` of csrc/emulator/trace_requests.h.
REQUEST = np.dtype(
    [
        ("first_sector", np.uint64),
        ("sectors", np.uint32),
        ("bytes", np.uint32),
        ("block", np.uint32),
        ("warp", np.uint32),
        ("epoch", np.uint32),
        ("place", np.uint32),
        ("instruction", np.uint32),
        ("wavefronts", np.uint16),
        ("least_wavefronts", np.uint16),
        ("kind", np.uint8),
        ("space", np.uint8),
        ("lanes", np.uint8),
        ("unused", np.uint8, 5),
    ]
)


@dataclass(frozen=True)
class Trace:
    """What one launch asked of memory.

    requests: array of REQUEST; ``first_sector`` and ``sectors`` are a slice of the sectors of a global request
    sectors:  address / 32 of the sectors of all global requests, in the order of the requests
    code:     of each instruction the offset in the library
    read_bytes, written_bytes: different bytes of the launch's arrays that were read, and written
    static_shared_bytes: of the static shared arrays that were used
    """

    launch: Launch
    requests: np.ndarray
    sectors: np.ndarray
    code: tuple[int, ...]
    read_bytes: int
    written_bytes: int
    static_shared_bytes: int
    library: Path

    def lines(self) -> list[str]:
        """``file.cu:12`` of each instruction, innermost inlined function; "?" where addr2line is missing."""
        if not shutil.which("addr2line") or not self.code:
            return ["?"] * len(self.code)
        command = ["addr2line", "-e", str(self.library), *map(hex, self.code)]
        found = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
        return [Path(line.split(" ")[0]).name for line in found]


@dataclass(frozen=True)
class Span:
    """Memory of one or more arrays that overlap: host addresses, and where the trace says that it starts."""

    start: int
    end: int
    traced_start: int


def spans(launches: Sequence[Launch]) -> list[Span]:
    """The memory of all arrays of these launches. Each span starts as cudaMalloc would align it."""
    arrays = {
        id(value): value for launch in launches for value in launch.args if isinstance(value, np.ndarray)
    }
    edges = sorted((a.ctypes.data, a.ctypes.data + a.nbytes) for a in arrays.values() if a.nbytes)
    merged: list[tuple[int, int]] = []
    for start, end in edges:
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    found, next_start = [], _ALIGNMENT_BYTES
    for start, end in merged:
        found.append(Span(start, end, next_start))
        next_start += -(-(end - start) // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
    return found


class Tracer:
    """The kernels of a ``.cu`` file, built so that their accesses are recorded."""

    def __init__(self, source: Path | str, defines: Sequence[str] = ()) -> None:
        """Raises BuildError with the compiler's first error."""
        self._module = Module(source, defines, traced=True)
        self._library = self._module.library
        for name in ("requests", "sectors"):
            getattr(self._library, f"emulator_trace_{name}").restype = ctypes.c_void_p
        for name in ("code", "touched", "static_shared"):
            getattr(self._library, f"emulator_trace_{name}").restype = ctypes.c_uint64

    def run(self, launch: Launch, memory: Sequence[Span] | None = None) -> Trace:
        """Run a launch to its end and return what it did. Raises as ``Module.run`` does.

        ``memory``: the spans of all launches of a call, so that they share addresses; by default of this one.
        """
        known = spans([launch]) if memory is None else memory
        numbers = [n for span in known for n in (span.start, span.end, span.traced_start)]
        self._library.emulator_trace_start((ctypes.c_uint64 * max(1, len(numbers)))(*numbers), len(known))
        try:
            self._module.run(launch)
        finally:
            self._library.emulator_trace_stop()
        touched = self._library.emulator_trace_touched
        return Trace(
            launch=launch,
            requests=self._copied("requests", REQUEST),
            sectors=self._copied("sectors", np.dtype(np.uint64)),
            code=self._code(),
            read_bytes=sum(touched(i, 0) for i in range(len(known))),
            written_bytes=sum(touched(i, 1) for i in range(len(known))),
            static_shared_bytes=self._library.emulator_trace_static_shared(),
            library=Path(self._library._name),
        )

    def _copied(self, name: str, kind: np.dtype) -> np.ndarray:
        count = ctypes.c_uint64()
        address = getattr(self._library, f"emulator_trace_{name}")(ctypes.byref(count))
        if not count.value:
            return np.empty(0, kind)
        return np.frombuffer(ctypes.string_at(address, count.value * kind.itemsize), kind)

    def _code(self) -> tuple[int, ...]:
        numbers = itertools.count()
        return tuple(iter(lambda: self._library.emulator_trace_code(next(numbers)), 0))
