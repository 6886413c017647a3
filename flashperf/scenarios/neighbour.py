"""A busy neighbour, started by the scenario itself: a process that computes on one core until it is ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from types import TracebackType

_PROGRAM = """
import ctypes, os, signal
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # ends with its parent
core = {core}
if core is not None:
    os.sched_setaffinity(0, [core])
print("ready", flush=True)
while True:
    pass
"""


class Neighbour:
    """While it is entered, one core is half as fast for everybody else. ``core`` None: wherever it is put."""

    def __init__(self, core: int | None = None) -> None:
        self.core = core
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Neighbour:
        command = [sys.executable, "-c", _PROGRAM.format(core=self.core)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != "ready":
            self.close()
            raise OSError("the busy neighbour did not start")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End it."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process = None


def can_bind() -> str:
    """Why a process can't be bound to a core here; empty if it can."""
    if not hasattr(os, "sched_setaffinity"):
        return f"processes can't be bound to cores on {sys.platform}"
    try:
        os.sched_setaffinity(0, os.sched_getaffinity(0))
    except OSError as error:
        return f"no permission to bind to cores: {error.strerror}"
    return ""
