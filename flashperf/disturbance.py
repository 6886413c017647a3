"""Evidence that a call was stolen from: involuntary context switches, steal time, cgroup throttling.

A disturbed call is repeated on this evidence and never on its time: dropping long calls because they are long
would bias what is measured.
"""

from __future__ import annotations

import os
import re
import resource
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class Disturbance:
    """Counters at one moment, or their growth between two.

    involuntary: times the kernel took this process off a core; steal_ticks: time that the hypervisor gave to
    others, in USER_HZ ticks (10 ms) over all cores; throttled: periods in which the cgroup ran out of quota.
    """

    involuntary: int = 0
    steal_ticks: int = 0
    throttled: int = 0

    def __sub__(self, before: Disturbance) -> Disturbance:
        return Disturbance(
            self.involuntary - before.involuntary,
            self.steal_ticks - before.steal_ticks,
            self.throttled - before.throttled,
        )

    def __bool__(self) -> bool:
        return self.involuntary > 0 or self.steal_ticks > 0 or self.throttled > 0

    @property
    def reason(self) -> str:
        """What happened, in words; empty if nothing did."""
        parts = []
        if self.involuntary > 0:
            parts.append(f"{self.involuntary} involuntary context switch{'es' * (self.involuntary > 1)}")
        if self.steal_ticks > 0:
            parts.append(f"{self.steal_ticks * 10} ms stolen by the hypervisor")
        if self.throttled > 0:
            parts.append(f"throttled by the CPU quota in {self.throttled} periods")
        return ", ".join(parts)


class Probe(Protocol):
    """Reads the counters; called outside the timed region."""

    def read(self) -> Disturbance:
        """The counters now."""


class NoProbe:
    """Sees nothing: for tests and for machines whose counters mean nothing."""

    def read(self) -> Disturbance:
        return Disturbance()


class SystemProbe:
    """Counters of this process and machine; a file that is missing counts as zero."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._stat = _open(root / "proc/stat")
        self._throttle = next(
            (fd for f in cgroup_files(root, "cpu.stat") if (fd := _open(f)) is not None), None
        )

    def read(self) -> Disturbance:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return Disturbance(usage.ru_nivcsw, _steal_ticks(self._stat), _throttled(self._throttle))

    def close(self) -> None:
        """Close the files that are kept open between readings."""
        for descriptor in (self._stat, self._throttle):
            if descriptor is not None:
                os.close(descriptor)
        self._stat = self._throttle = None

    def __del__(self) -> None:
        self.close()


def _open(path: Path) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def _read(descriptor: int | None, length: int) -> bytes:
    if descriptor is None:
        return b""
    try:
        return os.pread(descriptor, length, 0)
    except OSError:
        return b""


def _steal_ticks(descriptor: int | None) -> int:
    """The eighth number of the first line of /proc/stat (man 5 proc)."""
    fields = _read(descriptor, 256).split(b"\n", 1)[0].split()
    return int(fields[8]) if len(fields) > 8 and fields[0] == b"cpu" and fields[8].isdigit() else 0


def _throttled(descriptor: int | None) -> int:
    match = re.search(rb"^nr_throttled (\d+)", _read(descriptor, 4096), re.MULTILINE)
    return int(match.group(1)) if match else 0


def host_counters(root: Path = Path("/")) -> dict[str, float]:
    """Counters of this process and machine that only grow; those that the system doesn't tell are left out.

    page_faults: pages mapped on first touch; runqueue_s: time that the main thread was ready and not running
    (/proc/self/schedstat); softirq_s: time in soft interrupts over all cores (/proc/stat, in ticks of 10 ms)
    """
    found = {"page_faults": float(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)}
    with suppress(OSError, ValueError, IndexError):
        found["runqueue_s"] = int((root / "proc/self/schedstat").read_text().split()[1]) / 1e9
    with suppress(OSError, ValueError, IndexError):
        with open(root / "proc/stat", encoding="ascii") as file:
            fields = file.readline().split()
        found["softirq_s"] = int(fields[7]) / os.sysconf("SC_CLK_TCK")
    return found


def cgroup_files(root: Path, name: str) -> list[Path]:
    """The files called ``name`` of this process's cgroup and its parents, innermost first; v2, then v1.

    In a container the path that /proc/self/cgroup gives is often not visible; the mount's own root then
    counts.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        lines = []
    found: list[Path] = []
    for mount, path in _cgroup_paths(root / "sys/fs/cgroup", lines):
        folder = mount / path.lstrip("/")
        while True:
            file = folder / name
            if file.is_file() and file not in found:
                found.append(file)
            if folder == mount or mount not in folder.parents:
                break
            folder = folder.parent
    return found


def _cgroup_paths(base: Path, lines: list[str]) -> list[tuple[Path, str]]:
    """(mount point, path of this process) of every hierarchy that controls the CPU."""
    paths: list[tuple[Path, str]] = []
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            paths += [(mount, path) for mount in (base, base / "unified") if mount.is_dir()]
        elif "cpu" in controllers.split(","):
            paths += [(mount, path) for mount in (base / controllers, base / "cpu") if mount.is_dir()]
    return paths or [(base, "/")]
