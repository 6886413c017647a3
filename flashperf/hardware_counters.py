"""A processor's own counters of cache reads and misses, through Linux's perf_event_open, or why there are none.

Counts are of this thread, outside the kernel. Where the processor has fewer counters than events, Linux takes turns
and the counts are scaled by the share of the time in which each ran (perf_event_open(2)).
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass

_SYSCALL = {"x86_64": 298, "aarch64": 241}
_ATTRIBUTE_BYTES = 64  # PERF_ATTR_SIZE_VER0: all that is set here
_TIMES = 1 | 2  # PERF_FORMAT_TOTAL_TIME_ENABLED, _RUNNING
_DISABLED, _EXCLUDE_KERNEL, _EXCLUDE_HYPERVISOR = 1 << 0, 1 << 5, 1 << 6
_ENABLE, _DISABLE, _RESET = 0x2400, 0x2401, 0x2403


@dataclass(frozen=True)
class Event:
    """What Linux calls an event: its type and its configuration (linux/perf_event.h)."""

    kind: int
    config: int


def _cache_event(cache: int, missed: bool) -> Event:
    """PERF_TYPE_HW_CACHE: reads of a cache, all of them or those that missed."""
    return Event(3, cache | 0 << 8 | int(missed) << 16)


#: Level -> its reads and those that missed: the first data cache and the last one are all that Linux names.
CACHE_EVENTS = {
    "L1": (_cache_event(0, False), _cache_event(0, True)),
    "last level": (_cache_event(2, False), _cache_event(2, True)),
}


class HardwareCounters:
    """Counts events while a call runs. ``reason`` is empty if that can be done here, else it says why not.

    Most virtual machines show no counters; elsewhere /proc/sys/kernel/perf_event_paranoid decides who may read them.
    """

    def __init__(self, events: Mapping[str, Event]) -> None:
        self._files: dict[str, int] = {}
        self.reason = ""
        try:
            for name, event in events.items():
                self._files[name] = _open(event)
        except OSError as error:
            self.close()
            self.reason = _why(error)

    def count(self, call: Callable[[], object], times: int) -> dict[str, float]:
        """Events by name in ``times`` calls. Raises RuntimeError where ``reason`` says why there are none."""
        if self.reason:
            raise RuntimeError(self.reason)
        for file in self._files.values():
            fcntl.ioctl(file, _RESET, 0)
            fcntl.ioctl(file, _ENABLE, 0)
        for _ in range(times):
            call()
        for file in self._files.values():
            fcntl.ioctl(file, _DISABLE, 0)
        return {name: _scaled(os.read(file, 24)) for name, file in self._files.items()}

    def close(self) -> None:
        """Give the counters back."""
        for file in self._files.values():
            os.close(file)
        self._files.clear()


def _open(event: Event) -> int:
    """A counter of this thread on any core, not running yet."""
    number = _SYSCALL.get(platform.machine())
    if number is None or platform.system() != "Linux":
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    flags = _DISABLED | _EXCLUDE_KERNEL | _EXCLUDE_HYPERVISOR
    fields = struct.pack("=IIQQQQQ", event.kind, _ATTRIBUTE_BYTES, event.config, 0, 0, _TIMES, flags)
    attribute = ctypes.create_string_buffer(fields, _ATTRIBUTE_BYTES)
    libc = ctypes.CDLL(None, use_errno=True)
    this_thread, any_core, no_group = 0, -1, -1
    file = int(libc.syscall(number, attribute, this_thread, any_core, no_group, 0))
    if file < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return file


def _scaled(read: bytes) -> float:
    """The count, as if the event had been counted all the time; NaN if it never was."""
    count, enabled_ns, running_ns = struct.unpack("=QQQ", read)
    if running_ns == 0:
        return float("nan")
    return float(count * enabled_ns / running_ns)


def _why(error: OSError) -> str:
    if error.errno in (errno.EACCES, errno.EPERM):
        return "no permission for hardware counters (/proc/sys/kernel/perf_event_paranoid decides)"
    if error.errno in (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP):
        return "this machine shows no hardware counters of its caches"
    return f"hardware counters can't be read: {error.strerror}"
