"""What a scenario is, and what it reports. Frozen, pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from flashperf.cases.guards import Guard
from flashperf.records import Interval

Line = Mapping[str, Any]


@dataclass(frozen=True)
class Quantity:
    """A number in a table. unit: "s", "ratio", "count", "fraction" or "calls"."""

    value: Interval
    unit: str


Cell = str | Quantity


@dataclass(frozen=True)
class Table:
    """A titled table; ``note`` says how to read it."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""


@dataclass(frozen=True)
class Total:
    """The one number of a scenario, or of a part: a ratio of times, flash / standard, and its verdict."""

    what: str
    ratio: Interval
    verdict: str


@dataclass(frozen=True)
class Findings:
    """What a scenario found. gaps: what could not be measured here, and why."""

    totals: tuple[Total, ...]
    tables: tuple[Table, ...]
    sentences: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()


def cores_text(number: float) -> str:
    """``1 core``, ``0.5 cores``."""
    return f"{number:g} core{'s' * (number != 1)}"


class Recorder(Protocol):
    """What a scenario measures with: a record, time left, and a random source."""

    seed: int

    def write(self, kind: str, **fields: Any) -> None:
        """Append a line to the record."""

    def tell(self, detail: str) -> None:
        """What is being done, for the display."""

    @property
    def left_s(self) -> float:
        """Seconds left of the budget."""


@dataclass(frozen=True)
class Scenario:
    """A scenario.

    measure: measures until the budget is spent and writes lines; raises UserError or WorkerError if it can't
    analyse: the lines -> Findings; lines of a run that was stopped must do
    """

    name: str
    question: str
    claims: tuple[str, ...]
    measure: Callable[[Recorder], None]
    analyse: Callable[[Sequence[Line]], Findings]
    requires: tuple[Guard, ...] = ()
    budget_s: float = 60.0
