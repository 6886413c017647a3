"""Progress with a scripted clock: a plain line every five seconds, a live display that redraws seldom."""

from __future__ import annotations

import io
import math

import pytest

from flashperf.progress import LiveProgress, NullProgress, PlainProgress, open_progress


class Clock:
    """Time that stands still until it is told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_plain_progress_says_a_line_every_five_seconds() -> None:
    stream, clock = io.StringIO(), Clock()
    progress = PlainProgress(stream, clock)
    progress.phase("measuring", "8 switches")
    for second in range(12):
        clock.now = 100.0 + second
        progress.update(second / 12, 12 - second, ["total x2.1", "tiling x1.4"])
    assert stream.getvalue().splitlines() == [
        "flashperf: measuring: 8 switches",
        "flashperf:  42%, 7 s left; total x2.1, tiling x1.4",
        "flashperf:  83%, 2 s left; total x2.1, tiling x1.4",
    ]


def test_names_from_outside_stay_on_their_line() -> None:
    stream = io.StringIO()
    PlainProgress(stream).phase("measuring", "a\nb\x1b[31m")
    assert stream.getvalue() == "flashperf: measuring: a b [31m\n"


def test_live_progress_redraws_at_most_every_half_second() -> None:
    stream, clock = Terminal(), Clock()
    progress = LiveProgress(stream, clock)
    progress.phase("measuring", "8 switches")
    for step in range(10):
        clock.now = 100.0 + step * 0.1
        progress.update(0.1, 40.0, [f"step {step}"])
    progress.close()
    drawn = [step for step in range(10) if f"step {step}" in stream.getvalue()]
    assert drawn == [5]
    assert "40 s left" in stream.getvalue()


def test_many_lines_are_cut() -> None:
    stream, clock = Terminal(), Clock()
    progress = LiveProgress(stream, clock)
    progress.update(0.5, math.nan, [f"switch {n}" for n in range(40)])
    progress.close()
    assert "switch 15" in stream.getvalue()
    assert "switch 16" not in stream.getvalue()
    assert "and 24 more" in stream.getvalue()
    assert "time left not known yet" in stream.getvalue()


def test_the_display_suits_the_stream_and_is_taken_away() -> None:
    with open_progress(quiet=True, stream=Terminal()) as progress:
        assert isinstance(progress, NullProgress)
        progress.phase("a", "b")
        progress.update(0.5, 1.0, [])
    with open_progress(stream=io.StringIO()) as progress:
        assert isinstance(progress, PlainProgress)
    terminal = Terminal()

    def broken() -> None:
        with open_progress(stream=terminal) as progress:
            assert isinstance(progress, LiveProgress)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken()
    assert terminal.getvalue().rstrip().endswith("\x1b[?25h") or "\x1b[?25h" in terminal.getvalue()
