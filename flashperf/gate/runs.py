"""Saved runs, from whichever tool: what they hold of each bench."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from flashperf.gate.saved import ProcessTimes, process_log

Samples = tuple[tuple[float, ...], ...]
TWICE = "is in the file twice: which one is meant is not known"


@dataclass(frozen=True)
class SavedBench:
    """One bench of a saved run.

    samples_s: seconds per call, by process; canary_s: the same of its canary, by process, or empty. key: what
    two runs must share to be compared. problem: why it can't be judged; failed: it raised.
    """

    name: str
    samples_s: Samples = ()
    canary_s: Samples = ()
    canary: str = ""
    key: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""
    failed: bool = False
    summary_s: float | None = None  # the one time that a file without samples gives

    @property
    def median_s(self) -> float | None:
        """Median of the process medians; what the summary says where there are no samples."""
        if not self.samples_s:
            return self.summary_s
        return float(np.median([np.median(one) for one in self.samples_s]))

    def times(self) -> ProcessTimes:
        """Its log times per process."""
        canary = tuple(process_log(one) for one in self.canary_s)
        return ProcessTimes(
            tuple(process_log(one) for one in self.samples_s), canary, self.canary.split("/")[0]
        )


@dataclass(frozen=True)
class SavedRun:
    """What a file holds. ``notes``: lines about it that the reader has to see."""

    label: str
    tool: str
    benches: Mapping[str, SavedBench]
    time: str = ""
    commit: str = ""
    notes: tuple[str, ...] = ()


def bad_samples(samples_s: Sequence[Sequence[float]]) -> str:
    """Why samples can't be used, or empty: none, NaN, zero or negative."""
    flat = [value for one in samples_s for value in one]
    if not flat:
        return "holds no samples"
    wrong = [value for value in flat if not (math.isfinite(value) and value > 0)]
    if not wrong:
        return ""
    what = "not a number" if math.isnan(wrong[0]) else f"{wrong[0]:g} s"
    hint = ": the clock stood still or went backwards" if wrong[0] <= 0 else ""
    return f"{len(wrong)} of {len(flat)} samples are no time, such as {what}{hint}"


def collect(label: str, tool: str, benches: Iterable[SavedBench], **more: Any) -> SavedRun:
    """A run from its benches; a name that occurs twice is kept once, with that as its problem."""
    found: dict[str, SavedBench] = {}
    for bench in benches:
        if bench.name in found:
            found[bench.name] = SavedBench(bench.name, problem=TWICE)
        else:
            found[bench.name] = bench
    return SavedRun(label, tool, found, **more)


def plain_bench(name: str, samples: Iterable[Iterable[Any]], key: Mapping[str, Any]) -> SavedBench:
    """A bench from samples in seconds by process; what is wrong with them becomes its problem."""
    try:
        by_process = tuple(tuple(float(value) for value in one) for one in samples)
    except (TypeError, ValueError):
        return SavedBench(name, problem="its samples are no numbers", key=key)
    problem = bad_samples(by_process)
    return SavedBench(name, () if problem else by_process, key=key, problem=problem)


def key_difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The fields that two runs should share and don't, each with both values; empty if all agree."""
    differing = []
    for name in dict.fromkeys([*before, *now]):
        values = [_plain(side.get(name, "unknown")) for side in (before, now)]
        if values[0] != values[1]:
            differing.append(f"{name} {_short(values[0])} before, {_short(values[1])} now")
    return "; ".join(differing)


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list | tuple) else value


def _short(value: Any) -> str:
    text = " ".join(value) if isinstance(value, tuple) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."
