"""What a worker process of the gate holds: the benches of one tree, prepared, checked, and timed on request.

This file is also copied into processes that run another revision of the code, so that both sides are timed by the
same lines. It imports of flashperf only what every revision has, inside functions: cases, bind and check.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

Call = Callable[[], object]
FIXTURE = "flashperf_bench"


class Side:
    """The benches of the files named in ``collect``, or those of ``cases`` (ids of registered cases).

    root: the folder in which pytest collects. expected: a folder that flashperf must come from, or empty.
    """

    def __init__(
        self,
        collect: Sequence[str] = (),
        cases: Sequence[str] = (),
        root: str = "",
        select: str = "",
        expected: str = "",
    ) -> None:
        if expected:
            _require_tree(expected)
        self.problems: dict[str, str] = {}
        self.benches = dict(_registered(cases))
        if collect:
            found, self.problems = _collected(collect, root, select)
            self.benches |= found
        self._problem: Any = None
        self._call: Call | None = None
        self._wait: Call = _nothing
        self._bound: tuple[Any, ...] = ()
        self._slowed: Callable[[Call], Call] | None = None

    def plant(self, kind: str, seconds: float) -> None:
        """From the next ``fresh`` on every call takes this much longer: the gate's own test (gate/planted.py)."""
        from flashperf.gate.planted import planted

        self._slowed = planted(kind, seconds)

    def names(self) -> dict[str, Any]:
        """What can be timed here, and what can't with its reason; where the code came from."""
        import flashperf

        skipped, threads = dict(self.problems), os.environ.get("OMP_NUM_THREADS", "")
        for name, (mechanism, case) in self.benches.items():
            reason = _why_not(mechanism, case)
            if reason:
                skipped[name] = reason
        ready = [name for name in self.benches if name not in skipped]
        return {"ready": ready, "skipped": skipped, "from": flashperf.__file__, "threads": threads}

    def prepare(self, name: str) -> dict[str, Any]:
        """Bind a bench, check it, and say how long one call takes, seconds; a wrong result raises."""
        from flashperf.measure import bind_case
        from flashperf.timers import calibrate

        mechanism, case = self.benches[name]
        bound = bind_case(mechanism, case)
        self._problem = bound.problem
        self._wait = _waiter(case.backend)
        calls, one_s = calibrate(_waited(bound.call, self._wait))
        return {"one_s": one_s, "calls": calls, "first_call_s": bound.first_call_s}

    def fresh(self) -> None:
        """New buffers for the bench that was prepared; those before them are given back first."""
        self._call, self._bound = None, ()
        self._bound = self._problem.bind()
        self._call = self._slowed(self._bound[0]) if self._slowed else self._bound[0]

    def sample(self, calls: int, chunks: int = 1) -> dict[str, float]:
        """Seconds per call of ``chunks`` times ``calls`` calls, after one untimed call.

        A chunk during which this process was taken off its core is timed again, on that evidence and never on
        its time, after an untimed call; as many of them as there are chunks. ``disturbed``: how many there were.
        """
        call, wait = self._call, self._wait
        assert call is not None, "fresh comes first"
        call()
        wait()
        kept: list[int] = []
        disturbed: list[int] = []
        while len(kept) < chunks and len(kept) + len(disturbed) < 2 * chunks:
            before = _switches()
            elapsed_ns = _time_ns(call, wait, calls)
            if _switches() == before:
                kept.append(elapsed_ns)
            else:
                disturbed.append(elapsed_ns)
                call()
                wait()
        used = sorted(kept or disturbed)
        cut = len(used) // 5
        used = used[cut : len(used) - cut]  # 20 % at each end
        return {"seconds": sum(used) * 1e-9 / (len(used) * calls), "disturbed": len(disturbed)}

    def window(self, seconds: float, calls: int) -> list[float]:
        """Consecutive samples over a time, at least five: how tools that don't take turns measure."""
        self.fresh()
        call, wait = self._call, self._wait
        assert call is not None
        call()
        times: list[float] = []
        end = time.perf_counter() + seconds
        while len(times) < 5 or time.perf_counter() < end:
            times.append(_time_ns(call, wait, calls) * 1e-9 / calls)
        return times

    def finish(self) -> None:
        """Check the outputs of the last buffers, and give them back; a wrong result raises."""
        if self._call is not None:
            wanted = len(
                inspect.signature(self._problem.check).parameters
            )  # older revisions: without the call
            self._problem.check(*self._bound[-wanted:])
        self._call, self._bound = None, ()


def _switches() -> int:
    """Involuntary context switches of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def _time_ns(call: Call, wait: Call, calls: int) -> int:
    repeats = range(calls)
    begin = time.perf_counter_ns()
    for _ in repeats:
        call()
    wait()
    return time.perf_counter_ns() - begin


def _nothing() -> None:
    """What there is to wait for on a CPU."""


def _waiter(backend: str) -> Call:
    """Waits until a device is done: a GPU's calls return before their work is."""
    if backend == "cuda":
        import cupy

        return lambda: cupy.cuda.Device().synchronize()
    if backend == "triton":
        import torch

        if torch.cuda.is_available():
            return torch.cuda.synchronize
    return _nothing


def _waited(call: Call, wait: Call) -> Call:
    if wait is _nothing:
        return call

    def both() -> None:
        call()
        wait()

    return both


def _require_tree(folder: str) -> None:
    """flashperf and its kernels must come from this folder: comparing a tree with itself would look fine."""
    import flashperf
    import flashperf.kernels

    for module in (flashperf, flashperf.kernels):
        where = os.path.realpath(next(iter(module.__path__)))
        if not where.startswith(os.path.realpath(folder) + os.sep):
            raise RuntimeError(f"{module.__name__} was loaded from {where}, not from {folder}")


def _registered(ids: Sequence[str]) -> Iterator[tuple[str, tuple[Any, Any]]]:
    for text in ids:
        from flashperf.records import Case
        from flashperf.registry import mechanism

        case = Case.parse(text)
        yield text, (mechanism(case.mechanism), case)


def _why_not(mechanism: Any, case: Any) -> str:
    from flashperf.registry import why_not

    return why_not(mechanism, case)


class _Collector:
    """A pytest plugin that keeps the items and runs none."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self.errors: dict[str, str] = {}

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            said = [line for line in str(report.longrepr).splitlines() if line.startswith("E ")]
            self.errors[report.nodeid] = said[-1][1:].strip() if said else "it can't be collected"

    def pytest_collection_finish(self, session: Any) -> None:
        self.items = list(session.items)


def _collected(
    files: Sequence[str], root: str, select: str
) -> tuple[dict[str, tuple[Any, Any]], dict[str, str]]:
    """Benches by pytest id, and those that can't be used with the reason; collection errors are such too."""
    import pytest

    collector, said = _Collector(), io.StringIO()
    arguments = ["--collect-only", "-q", "-p", "no:cacheprovider", "--continue-on-collection-errors", *files]
    if root:
        arguments += ["--rootdir", root]
        os.chdir(root)
    if select:
        arguments += ["-k", select]
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = int(pytest.main(arguments, plugins=[collector]))
    if code not in (0, 5):
        sys.stderr.write(said.getvalue())
    benches: dict[str, tuple[Any, Any]] = {}
    problems: dict[str, str] = dict(collector.errors)
    for item in collector.items:
        if FIXTURE in getattr(item, "fixturenames", ()):
            case, reason = _case_of(item)
            if case is None:
                problems[item.nodeid] = reason
            else:
                benches[item.nodeid] = case
    return benches, problems


def _case_of(item: Any) -> tuple[tuple[Any, Any] | None, str]:
    """The mechanism and case that a bench asks its fixture for: the function is called with one that notes them."""
    given = getattr(getattr(item, "callspec", None), "params", {})
    wanted = [name for name in inspect.signature(item.function).parameters if name not in {*given, FIXTURE}]
    if wanted:
        return None, f"uses the fixtures {', '.join(wanted)}: it can only be timed inside pytest"
    asked: list[tuple[Any, Any]] = []
    try:
        item.obj(**given, **{FIXTURE: lambda mechanism, case: asked.append((mechanism, case))})
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"
    if len(asked) != 1:
        return None, f"asks for {len(asked)} cases, not one"
    return asked[0], ""
