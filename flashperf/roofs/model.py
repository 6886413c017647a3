"""Ceilings and how the one that bounds a kernel is chosen. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from flashperf.errors import UserError
from flashperf.records import Environment, Interval
from flashperf.roofline import Roof
from flashperf.stats import ratio_interval
from flashperf.units import rate, seconds

MEMORY, COMPUTE, DISPATCH, TIMER = "memory", "compute", "dispatch", "timer"
#: Bandwidths of a GPU that no roof of a kernel is made of: shared memory is no cache, and the host link is passed
#: before or after a kernel.
SCRATCHPAD, LINK = "scratchpad", "link"
DRAM = "DRAM"
AS_FAST = 0.97  # of the fastest unit
#: Formats whose products run in the units of another: half types are widened before they are multiplied.
_COMPUTED_AS = {"f16": "f32", "bf16": "f32"}


@dataclass(frozen=True)
class Ceiling:
    """One limit of a machine: the best of several samples in each of P processes.

    kind:        MEMORY, COMPUTE, DISPATCH or TIMER; of a GPU also SCRATCHPAD or LINK
    name:        a memory level ("L2"), a number format ("bf16"), or what costs time ("call from Python")
    how:         the access pattern ("load", "copy", ...) or the unit ("fma", "amx", ...)
    per_process: bytes/s, FLOP/s, or seconds where the kind is DISPATCH or TIMER
    level_bytes: capacity of the memory level, 0 where it has none or isn't one
    used_bytes:  the working set it was measured with
    """

    kind: str
    name: str
    how: str
    threads: int
    per_process: tuple[float, ...]
    level_bytes: int = 0
    used_bytes: int = 0

    @cached_property
    def interval(self) -> Interval:
        """The mean over processes (of logs) with its 95 % interval."""
        return ratio_interval(np.log(self.per_process))

    @property
    def value(self) -> float:
        """The middle of the interval."""
        return self.interval.value

    @property
    def unit(self) -> str:
        """``B/s``, ``FLOP/s``, ``OP/s`` for integers, or ``s``."""
        if self.kind in (MEMORY, SCRATCHPAD, LINK):
            return "B/s"
        if self.kind == COMPUTE:
            return "OP/s" if self.name.startswith("i") else "FLOP/s"
        return "s"

    def text(self, value: float) -> str:
        """A value of this ceiling with its unit."""
        return seconds(value) if self.unit == "s" else rate(value, self.unit)


@dataclass(frozen=True)
class Roofs:
    """All ceilings of one machine, measured together. ``seconds`` is how long that took.

    ``backend``: "cpu", or "cuda" for those of a GPU, which have one "thread", the whole GPU.
    """

    environment: Environment
    ceilings: tuple[Ceiling, ...]
    seconds: float
    notes: tuple[str, ...] = ()
    backend: str = "cpu"

    def of(self, kind: str, threads: int | None = None) -> list[Ceiling]:
        """The ceilings of a kind, in the order in which they were measured."""
        return [c for c in self.ceilings if c.kind == kind and threads in (None, c.threads)]

    @property
    def thread_counts(self) -> list[int]:
        """How many threads the ceilings were measured with, fewest first."""
        return sorted({c.threads for c in self.of(MEMORY)})

    def threads_for(self, wanted: int) -> int:
        """The measured number of threads that bounds a kernel with so many: the least that is no smaller."""
        counts = self.thread_counts
        return next((count for count in counts if count >= wanted), counts[-1] if counts else wanted)

    def levels(self, threads: int = 1) -> list[Ceiling]:
        """The best access pattern of every memory level, innermost first."""
        return self._levels.get(threads, [])

    @cached_property
    def _levels(self) -> dict[int, list[Ceiling]]:
        found = {}
        for threads in self.thread_counts:
            measured = self.of(MEMORY, threads)
            names = dict.fromkeys(c.name for c in measured)
            found[threads] = [_best(c for c in measured if c.name == name) for name in names]
        return found

    def loads(self, level: Ceiling) -> Ceiling:
        """What loads alone reach at the level of a ceiling; itself where that wasn't measured."""
        return self._loads.get((level.name, level.threads), level)

    @cached_property
    def _loads(self) -> dict[tuple[str, int], Ceiling]:
        return {(c.name, c.threads): c for c in self.of(MEMORY) if c.how == "load"}

    def memory(
        self,
        bytes_moved: int,
        working_set_bytes: int,
        from_memory_bytes: int = 0,
        threads: int = 1,
        written_bytes: int | None = None,
    ) -> tuple[Ceiling, float]:
        """The level that bounds so many bytes, and the bytes/s that they can have at most.

        Of a working set that is gone through again and again, a cache holds at most its own size, so at least the
        rest comes from further out; every byte passes the innermost level. ``from_memory_bytes``: what has to come
        from memory in any case (cold caches). ``written_bytes``: how many of them are; what comes from a level
        beyond them is read, and no faster than loads alone (a level may carry both ways at once). None: unknown.
        Raises UserError where nothing was measured with so many threads.
        """
        levels = self.levels(threads)
        if not levels:
            raise UserError(f"no bandwidth was measured with {threads} threads; run flashperf roofs again")
        held, least = 0, []
        for level in levels:
            outside = bytes_moved * max(0.0, 1 - held / working_set_bytes)
            if level is levels[-1]:
                outside = max(outside, from_memory_bytes)
            read = outside - (bytes_moved if written_bytes is None else written_bytes)
            least.append((max(outside / level.value, read / self.loads(level).value), level))
            held = max(held, level.level_bytes)
        least_s, bound = max(least, key=lambda pair: pair[0])
        return bound, bytes_moved / least_s

    def units(self, number_format: str, threads: int = 1) -> list[Ceiling]:
        """The units that compute in a format, fastest first; those of f32 where a format has none itself.

        Of two that are as fast as each other, fused multiply-adds come before separate ones ("simd").
        """
        found = [c for c in self.of(COMPUTE, threads) if c.name == number_format]
        if not found and number_format in _COMPUTED_AS:
            return self.units(_COMPUTED_AS[number_format], threads)
        best = max((c.value for c in found), default=0.0)
        return sorted(found, key=lambda c: (c.value < AS_FAST * best, c.how == "simd", -c.value))

    def fixed_s(self) -> tuple[float, float]:
        """Seconds of one call from Python and of each further one from native code; 0 if not measured.

        On a GPU the clock sees no host: a launch costs what one does that was enqueued before, a call nothing more.
        """
        by_how = {c.how: c.value for c in self.of(DISPATCH)}
        return by_how.get("python", 0.0), by_how.get("native", by_how.get("enqueued", 0.0))

    def roof(
        self,
        number_format: str,
        bytes_moved: int,
        working_set_bytes: int,
        from_memory_bytes: int = 0,
        threads: int = 1,
        written_bytes: int | None = None,
    ) -> Roof:
        """What bounds a kernel that computes in ``number_format``; bytes as in ``memory``.

        Raises UserError for a format that no unit was measured in.
        """
        units = self.units(number_format, threads)
        if not units:
            raise UserError(f"no unit was measured that computes in {number_format}")
        memory, rate_bytes = self.memory(
            max(1, bytes_moved), working_set_bytes, from_memory_bytes, threads, written_bytes
        )
        call_s, launch_s = self.fixed_s()
        return Roof(
            name=memory.name + (f" ({threads} threads)" if threads > 1 else ""),
            flops_per_s=units[0].value,
            bytes_per_s=rate_bytes,
            source=f"measured on {self.environment.device}",
            launch_s=launch_s,
            call_s=max(0.0, call_s - launch_s),
            compute_name=f"{units[0].name} {units[0].how}",
            uncertainty=max(_relative(memory.interval), _relative(units[0].interval)),
        )


def _best(ceilings: object) -> Ceiling:
    return max(ceilings, key=lambda c: c.value)  # type: ignore[call-overload, no-any-return]


def _relative(interval: Interval) -> float:
    """How far the upper end lies above the value, as a fraction of it; 0 where there is no interval."""
    return interval.high / interval.value - 1 if np.isfinite(interval.high) else 0.0
