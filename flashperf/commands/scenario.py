"""``flashperf scenario``: what belongs to a process or a machine rather than to a call, each with its own total."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType

WIDTH = 100


def print_parts(parts: Iterable[RenderableType]) -> None:
    """Print with rich, at most WIDTH columns; where it isn't a terminal, without trailing blanks."""
    from flashperf.report import console_for

    console = console_for(sys.stdout)
    width = min(console.width, WIDTH)
    with console.capture() as captured:
        for part in parts:
            console.print(part, width=width)
    text = captured.get()
    if not console.is_terminal:
        text = "".join(line.rstrip() + "\n" for line in text.splitlines())
    console.file.write(text)
