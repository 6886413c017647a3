"""A CPU quota for the scenario's own processes: a control group of its own, removed afterwards."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

from flashperf.disturbance import cgroup_files

PERIOD_US = 100_000


class QuotaError(OSError):
    """A quota can't be set here; the message says why."""


class Quota:
    """A control group below this process's with ``cores`` cores' worth of time. Raises QuotaError on entering."""

    def __init__(self, cores: float, processes: Iterable[int], root: Path = Path("/")) -> None:
        self.cores, self.processes, self._root = cores, tuple(processes), root
        self.folder: Path | None = None

    def __enter__(self) -> Quota:
        parent, version = _parent(self._root)
        folder = parent / f"flashperf-{os.getpid()}"
        try:
            folder.mkdir()
            self.folder = folder
            limit_us = max(1000, round(self.cores * PERIOD_US))
            if version == 2:
                (folder / "cpu.max").write_text(f"{limit_us} {PERIOD_US}")
            else:
                (folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
                (folder / "cpu.cfs_quota_us").write_text(str(limit_us))
            for process in self.processes:
                (folder / "cgroup.procs").write_text(str(process))
        except OSError as error:
            self._remove(parent)
            raise QuotaError(f"no CPU quota can be set here: {error.strerror} ({folder.parent})") from error
        self._above = parent
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove(self._above)

    def throttled(self) -> tuple[int, int]:
        """(periods in which the quota ran out, all periods) since it was set."""
        text = (self.folder / "cpu.stat").read_text() if self.folder else ""
        counts = dict(re.findall(r"^(nr_throttled|nr_periods) (\d+)$", text, re.MULTILINE))
        return int(counts.get("nr_throttled", 0)), int(counts.get("nr_periods", 0))

    def _remove(self, parent: Path) -> None:
        """Processes go back to where they were, then the group goes."""
        if self.folder is None:
            return
        for process in self.processes:
            with contextlib.suppress(OSError):
                (parent / "cgroup.procs").write_text(str(process))
        with contextlib.suppress(OSError):
            self.folder.rmdir()
        self.folder = None


def _parent(root: Path) -> tuple[Path, int]:
    """The CPU group of this process and the version of its interface. Raises QuotaError if there is none."""
    for file in cgroup_files(root, "cpu.max"):
        return file.parent, 2
    for file in cgroup_files(root, "cpu.cfs_quota_us"):
        return file.parent, 1
    raise QuotaError("no CPU quota can be set here: there is no control group for the CPU")
