"""What an open case declares: two ways of doing the same thing, the sizes to try, and what the report said.

A case is one small module with a ``CASE``, in ``flashperf/cases/definitions`` or in a file of its own
(``flashperf cases FILE.py``). Nothing of it is read by the diagnosis, which sees measurements and counts only
(``flashperf/cases/rules.py``); the expectation is compared with what the diagnosis says afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flashperf.cases.guards import Guard, torch_installed

#: Where a point stands in the case: along the sweep, or a control in which the effect should be absent.
SWEEP, CONTROL = "sweep", "control"


@dataclass(frozen=True)
class Point:
    """One setting: named sizes, and ``x``, the size along which the crossover is looked for.

    paths: those measured against the baseline here; empty: all of the case.
    """

    sizes: Mapping[str, int]
    x: float
    role: str = SWEEP
    paths: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """``rows=200, outputs=60000``."""
        return ", ".join(f"{name}={value}" for name, value in self.sizes.items())


@dataclass(frozen=True)
class Proof:
    """What must be seen to have run in one call, from torch's profiler, the result and the object itself.

    ops: names of operators, or of the compiler's regions by their beginning; absent: names that must not
    occur; both need torch among the case's ``requires``. module: the end of the name of the type of the module that
    does the work. result: the dtype of the result, such as ``int32``, or of its first array.
    """

    ops: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    module: str = ""
    result: str = ""


@dataclass
class Built:
    """One path at one point, bound to fresh inputs.

    call:      does the work and returns the result (a tensor, an array or a sequence of them)
    reference: the result in float64; None: it must agree with the baseline's result
    tolerance: largest error allowed, as a fraction of the largest reference value
    facts:     exact counts that the definition knows, such as ``work`` done and ``useful`` of it (docs/cases.md
               lists those that a rule reads); or a function that returns them after the first call
    parts:     pieces of the call that are also timed alone, by name: ``copy``, ``quantise``
    proof:     what must have run; None where the call can't be profiled (it profiles itself)
    module:    the module that does the work, if there is one
    """

    call: Callable[[], Any]
    reference: Callable[[], Any] | None = None
    tolerance: float = 1e-4
    facts: Mapping[str, float] | Callable[[], Mapping[str, float]] = field(default_factory=dict)
    parts: Mapping[str, Callable[[], Any]] = field(default_factory=dict)
    proof: Proof | None = field(default_factory=Proof)
    module: Any = None


@dataclass(frozen=True)
class Expectation:
    """What the report leads one to expect of the optimised path at the headline point.

    sign: "slower", "faster" or "equal"; mechanism: a name in ``rules.MECHANISMS``, "" where there is no loss;
    ``where``: guards that say on which machines it is to be expected. Elsewhere the case does not apply, which is a
    result.
    """

    sign: str
    mechanism: str
    where: tuple[Guard, ...] = ()


@dataclass(frozen=True)
class OpenCase:
    """A public report that an optimised path lost, as a small experiment.

    baseline, optimised: names of the two paths; others: further paths that the diagnosis needs
    make:        (path, sizes, seed) -> Built
    points:      settings; ``headline`` is the index of the one that the diagnosis is of
    requires:    guards without which nothing can be measured; with ``torch_installed`` among them torch's
                 profiler looks on, without it no process imports torch
    fresh:       every sample is a process of its own, in which the calls of a path are timed from the first
                 on; the call returns how it went (``flashperf.scenarios.compile_story.told``)
    stand_in:    what replaces what the report was about, where this machine lacks it; empty: nothing
    file:        where the definition was read from, if it is not one of the program's own; set on reading
    """

    id: str
    name: str
    title: str
    source: str
    reported: str
    axis: str
    baseline: str
    optimised: str
    make: Callable[[str, Mapping[str, int], int], Built]
    points: Sequence[Point]
    expectation: Expectation
    headline: int = 0
    others: tuple[str, ...] = ()
    requires: tuple[Guard, ...] = ()
    threads: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)
    fresh: bool = False
    stand_in: str = ""
    file: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.headline < len(self.points):
            raise ValueError(f"case {self.id}: there is no point {self.headline} for the headline")
        if self.expectation.sign not in ("slower", "faster", "equal"):
            raise ValueError(f"case {self.id}: sign {self.expectation.sign!r} is none")

    @property
    def reference(self) -> str:
        """What finds the case again in another process: its file, or its id."""
        return self.file or self.id

    @property
    def uses_torch(self) -> bool:
        """Whether it can't be measured without torch."""
        return torch_installed in self.requires

    def pairs(self) -> list[tuple[int, str]]:
        """Every (point, path) that is measured against the baseline."""
        paths = (self.optimised, *self.others)
        return [
            (n, path)
            for n, point in enumerate(self.points)
            for path in (point.paths or paths)
            if path != self.baseline
        ]
