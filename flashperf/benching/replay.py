"""Measured durations handed to pytest-benchmark: its own rounds, on a timer that replays what was measured.

Imports nothing: it is loaded in every pytest run where flashperf is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any


class ReplayTimer:
    """A timer that replays measured durations: each is the difference of two readings, exactly."""

    __name__ = "flashperf_replay"

    def __init__(self) -> None:
        self._durations_s: list[float] = []
        self._started = False

    def load(self, durations_s: Iterable[float]) -> None:
        """What the next readings are to give, in order, seconds."""
        self._durations_s = list(durations_s)[::-1]
        self._started = False

    def __call__(self) -> float:
        """0 at the start of a round, its duration at the end."""
        self._started = not self._started
        return 0.0 if self._started or not self._durations_s else self._durations_s.pop()


REPLAY = ReplayTimer()


def replay(
    benchmark: Any, durations_s: Sequence[float], calls: int, bind: Callable[[], Callable[[], object]]
) -> None:
    """Fill pytest-benchmark's record: a round per duration (seconds), each of ``calls`` iterations.

    The rounds run nothing: the kernel was measured before. Only ``--benchmark-cprofile``, which comes after
    them, gets the kernel's own call, from ``bind``.
    """
    rounds = len(durations_s)
    target: Callable[[], object] = _nothing
    if benchmark.cprofile:  # pedantic runs once more for the result where a round has several iterations
        target = _Later(bind(), rounds * calls + (calls > 1))
    REPLAY.load(durations_s)
    benchmark.pedantic(target, rounds=rounds, iterations=calls)


def _nothing() -> None:
    """What a round runs."""


class _Later:
    """Does nothing the first times, then makes the call."""

    def __init__(self, call: Callable[[], object], silent: int) -> None:
        self._call, self._silent = call, silent

    def __call__(self) -> None:
        self._silent -= 1
        if self._silent < 0:
            self._call()
