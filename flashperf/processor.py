"""The name of the processor, with the standard library alone: what advice is checked against when it is loaded."""

from __future__ import annotations

import platform
import re
from pathlib import Path


def cpu_model(root: Path = Path("/")) -> str:
    """The processor's name as the kernel gives it, else its architecture."""
    try:
        text = (root / "proc/cpuinfo").read_text(errors="replace")
    except OSError:
        text = ""
    match = re.search(r"^(?:model name|Hardware|cpu model)\s*:\s*(.+)$", text, re.MULTILINE)
    return " ".join(match.group(1).split()) if match else platform.machine()
