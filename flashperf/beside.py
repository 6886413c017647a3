"""Work in segments, with the copies that each waits for made by a second thread while the one before runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

Span = tuple[int, int]  # begin and end, monotonic nanoseconds
Segment = TypeVar("Segment")


def run_beside(
    thread: Any, parts: Sequence[tuple[Segment, Any]], step: Callable[[Segment], None]
) -> list[Span]:
    """``step`` on every segment of ``parts``; a segment's copies (a sequence, or None) are done before it begins.

    ``thread`` is a ``native.Background`` or what has its methods. The copies of the first segment have nothing to
    hide behind. Returns the spans of the copies.
    """
    copied: list[Span] = []
    pending = _begin(thread, parts, 0)
    try:
        for number, (segment, _) in enumerate(parts):
            if pending:
                thread.wait()
                copied.append(thread.span_ns())
            pending = _begin(thread, parts, number + 1)
            step(segment)
    finally:
        thread.wait()
    return copied


def _begin(thread: Any, parts: Sequence[tuple[Any, Any]], number: int) -> bool:
    """Hand over the copies of a segment; whether there are any."""
    copies = parts[number][1] if number < len(parts) else None
    if copies is not None:
        thread.submit(copies)
    return copies is not None


def overlap_fraction(copies: Sequence[Span], computed: Sequence[Span]) -> float:
    """How much of the time in copies something was computed: their intersection over the time in copies.

    Spans of one kind do not overlap each other. Raises ValueError where nothing was copied.
    """
    total = sum(end - begin for begin, end in copies)
    if total <= 0:
        raise ValueError("no time was spent in copies")
    shared = sum(
        max(0, min(copy[1], work[1]) - max(copy[0], work[0])) for copy in copies for work in computed
    )
    return shared / total
