"""How a bound program is carried out: replayed natively, dispatched call by call, or with copies beside it.

A replay is called without arguments; ``timed()`` runs it once and gives the nanoseconds of each of the
program's calls, without those of the copies that another thread made, which ``copied_ns`` adds up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from flashperf.beside import Span, run_beside
from flashperf.errors import UserError
from flashperf.pipeline.engine import Engine, PlannedCall

Part = tuple[Sequence[PlannedCall], Sequence[PlannedCall]]  # calls of a segment, copies that it waits for


def replay_of(engine: Engine, parts: Sequence[Part], eager: bool) -> Any:
    """The replay of a program in segments. Raises UserError where the engine can't copy beside its calls."""
    run = (lambda calls: Eager(engine, calls)) if eager else engine.sequence
    if not any(copies for _, copies in parts):
        return run([call for calls, _ in parts for call in calls])
    if not hasattr(engine, "background"):
        raise UserError(f"transfer=streamed_overlapped is not made for {type(engine).__name__}")
    return Overlapped(engine, [(run(calls), copies) for calls, copies in parts])


class Eager:
    """Every call is checked and bound anew before it runs, from Python, as an eager framework dispatches."""

    def __init__(self, engine: Engine, calls: Sequence[PlannedCall]) -> None:
        self._bind = binder(engine)
        self._calls = tuple(calls)

    def __call__(self) -> None:
        bind = self._bind
        for call in self._calls:
            bind(call.kernel, *call.arrays, **call.scalars)()
            call.run.count += 1  # type: ignore[attr-defined]  # what ran counts for what was planned

    def timed(self) -> np.ndarray:
        """Run once; nanoseconds of each call, without its dispatch."""
        durations = np.empty(len(self._calls), np.int64)
        for number, call in enumerate(self._calls):
            bound = self._bind(call.kernel, *call.arrays, **call.scalars)
            begin = time.perf_counter_ns()
            bound()
            durations[number] = time.perf_counter_ns() - begin
            call.run.count += 1  # type: ignore[attr-defined]
        return durations


def binder(engine: Engine) -> Callable[..., Callable[[], None]]:
    """What dispatches a call on this engine: ``bind(kernel, *arrays, **scalars)`` returns the bound call."""
    found = getattr(engine, "bind", None)
    return found or (lambda kernel, *arrays, **scalars: engine.prepare(kernel, *arrays, **scalars).run)


def dispatch(engine: Engine, call: PlannedCall) -> None:
    """What ``Eager`` does for a call beside running it."""
    binder(engine)(call.kernel, *call.arrays, **call.scalars)


def hand_over(engine: Any) -> None:
    """Give the second thread nothing to do, and wait for it."""
    thread = engine.background()
    thread.submit(engine.sequence([]))
    thread.wait()


class Overlapped:
    """Segments in turn; while one runs, a second thread makes the copies that the next one waits for."""

    def __init__(self, engine: Any, parts: Sequence[tuple[Any, Sequence[PlannedCall]]]) -> None:
        self._thread = engine.background()
        self._parts = [(run, engine.sequence(copies) if copies else None) for run, copies in parts]
        self.copied_ns = 0

    def __call__(self) -> None:
        self._run(lambda run: run())

    def timed(self) -> np.ndarray:
        """Run once; nanoseconds of each call. ``copied_ns`` is the second thread's time in copies."""
        durations: list[np.ndarray] = []
        self._run(lambda run: durations.append(run.timed()))
        return np.concatenate(durations)

    def spans(self) -> tuple[list[Span], list[Span]]:
        """Run once; begin and end in monotonic nanoseconds of every segment, and of every segment's copies."""
        computed: list[Span] = []

        def timed(run: Any) -> None:
            begin = time.perf_counter_ns()
            run()
            computed.append((begin, time.perf_counter_ns()))

        return computed, self._run(timed)

    def _run(self, step: Callable[[Any], None]) -> list[Span]:
        spans = run_beside(self._thread, self._parts, step)
        self.copied_ns = sum(end - begin for begin, end in spans)
        return spans
