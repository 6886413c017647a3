"""Resident memory of this process, from /proc where there is one."""

from __future__ import annotations

import re
import resource
from contextlib import suppress
from pathlib import Path

_PROCESS = Path("/proc/self")


def _status_bytes(field: str) -> int | None:
    """A field of /proc/self/status given in kB, in bytes; None where there is none."""
    try:
        match = re.search(rf"^{field}:\s+(\d+) kB$", (_PROCESS / "status").read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(match.group(1)) * 1024 if match else None


def peak_bytes() -> int:
    """The largest resident size since the start or the last ``reset_peak``."""
    peak = _status_bytes("VmHWM")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 if peak is None else peak


def reset_peak() -> int:
    """Forget the peak so far, where the system can (Linux, man 5 proc, clear_refs); returns the resident size now."""
    with suppress(OSError):
        (_PROCESS / "clear_refs").write_text("5")
    now = _status_bytes("VmRSS")
    return peak_bytes() if now is None else now
