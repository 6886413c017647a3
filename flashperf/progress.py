"""What is being measured, what is known so far, and how long it still takes; on standard error.

Drawing takes time on the cores that are being measured, so a display redraws only when it is told something,
and at most every half second; nothing ticks in the background.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Protocol

REDRAW_S = 0.5
PLAIN_LINE_S = 5.0
MAX_LINES = 16


class ProgressSink(Protocol):
    """Takes news from whatever measures."""

    def phase(self, name: str, detail: str) -> None:
        """A new phase begins, such as ``measuring``; ``detail`` says what, in a few words."""

    def update(self, fraction: float, seconds_left: float, lines: Sequence[str]) -> None:
        """``fraction`` of the whole is done (0 to 1); ``lines``: what is known, such as intervals."""


class NullProgress:
    """Says nothing."""

    def phase(self, name: str, detail: str) -> None: ...

    def update(self, fraction: float, seconds_left: float, lines: Sequence[str]) -> None: ...


class PlainProgress:
    """A line when a phase begins and one every five seconds, for logs and pipes."""

    def __init__(self, stream: IO[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._clock = stream, clock
        self._said_at = -PLAIN_LINE_S

    def phase(self, name: str, detail: str) -> None:
        self._say(f"{name}: {detail}" if detail else name)
        self._said_at = self._clock()

    def update(self, fraction: float, seconds_left: float, lines: Sequence[str]) -> None:
        now = self._clock()
        if now - self._said_at >= PLAIN_LINE_S:
            self._said_at = now
            known = f"; {', '.join(lines)}" if lines else ""
            self._say(f"{fraction:4.0%}, {_left(seconds_left)}{known}")

    def _say(self, text: str) -> None:
        print(f"flashperf: {_one_line(text)}", file=self._stream, flush=True)


class LiveProgress:
    """A bar, the phase, the time left and the current intervals, redrawn in place; gone when it is closed."""

    def __init__(self, stream: IO[str], clock: Callable[[], float] = time.monotonic) -> None:
        from rich.console import Console
        from rich.live import Live

        self._clock = clock
        console = Console(file=stream, markup=False, highlight=False, emoji=False)
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._name, self._detail = "", ""
        self._fraction, self._seconds_left = 0.0, float("nan")
        self._lines: Sequence[str] = ()
        self._drawn_at = -REDRAW_S
        self._live.start()

    def phase(self, name: str, detail: str) -> None:
        self._name, self._detail = name, detail
        self._draw()

    def update(self, fraction: float, seconds_left: float, lines: Sequence[str]) -> None:
        self._fraction, self._seconds_left, self._lines = fraction, seconds_left, lines
        if self._clock() - self._drawn_at >= REDRAW_S:
            self._draw()

    def close(self) -> None:
        """Take the display away; to be called in any case, or the cursor stays hidden."""
        self._live.stop()

    def _draw(self) -> None:
        from rich.console import Group, RenderableType
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        self._drawn_at = self._clock()
        head = Table.grid(padding=(0, 1))
        bar = ProgressBar(total=1.0, completed=min(1.0, max(0.0, self._fraction)), width=30)
        head.add_row(bar, Text(f"{self._fraction:4.0%}"), Text(_left(self._seconds_left), "bold"))
        parts: list[RenderableType] = [
            head,
            Text(f"{self._name}: {_one_line(self._detail)}", overflow="ellipsis"),
        ]
        shown = list(self._lines[:MAX_LINES])
        if len(self._lines) > MAX_LINES:
            shown.append(f"and {len(self._lines) - MAX_LINES} more")
        parts += [Text("  " + _one_line(line), "dim", no_wrap=True, overflow="ellipsis") for line in shown]
        self._live.update(Group(*parts), refresh=True)


def _left(seconds: float) -> str:
    return f"{max(0.0, seconds):.0f} s left" if seconds == seconds else "time left not known yet"


def _one_line(text: str) -> str:
    """Text from outside without anything that moves the cursor."""
    return "".join(c if c.isprintable() else " " for c in text)


@contextmanager
def open_progress(quiet: bool = False, stream: IO[str] | None = None) -> Iterator[ProgressSink]:
    """The display that suits ``stream`` (default: standard error): live on a terminal, lines elsewhere."""
    target = stream or sys.stderr
    if quiet:
        yield NullProgress()
    elif target.isatty():
        live = LiveProgress(target)
        try:
            yield live
        finally:
            live.close()
    else:
        yield PlainProgress(target)
