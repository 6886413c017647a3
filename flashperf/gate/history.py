"""A bench over many saved runs: its times in order, and where they changed for good.

A large store is read once: what a run says of each bench is kept in an index, a line per file, appended whole, so
that several readers at once do no harm. Steps are found by ruptures (PELT: Killick, Fearnhead and Eckley 2012).
"""

from __future__ import annotations

import glob
import hashlib
import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from flashperf.errors import UserError
from flashperf.gate.readers import read_run
from flashperf.gate.revisions import cache_folder

INDEX_VERSION = 1
LEAST_RUNS = 6  # for a step: three on either side
MOST_RUNS = 500  # the newest ones, in which steps are looked for
_SEGMENT = 3
_PENALTY = 3.0  # times log n, in units of the noise's variance
_LEAST_NOISE = 0.002  # no machine is steadier from run to run


@dataclass(slots=True)  # not frozen: a large store has hundreds of thousands of them
class Point:
    """One bench in one run: median seconds per call, and relative to its canary where it has one."""

    run: str
    time: str
    commit: str
    median_s: float
    to_canary: float | None


@dataclass(frozen=True)
class Step:
    """From run number ``at`` on the time is ``factor`` times what it was."""

    at: int
    factor: float


@dataclass(frozen=True)
class Series:
    """A bench's points in time order, and its steps; relative: measured against the canary."""

    name: str
    points: tuple[Point, ...]
    steps: tuple[Step, ...] = ()
    relative: bool = False

    @property
    def values(self) -> np.ndarray:
        """What steps are found in: seconds, or times that of the canary."""
        return np.array([p.to_canary if self.relative else p.median_s for p in self.points], dtype=float)


@dataclass(frozen=True)
class History:
    """All series of a store, and what had to be left out."""

    series: tuple[Series, ...]
    runs: int
    problems: tuple[str, ...]
    can_find_steps: bool


def saved_files(place: str) -> list[Path]:
    """The files of a folder (all JSON in it) or a pattern. Raises UserError if there is none."""
    path = Path(place)
    if path.is_dir():
        found = [
            Path(base) / name for base, _, names in os.walk(path) for name in names if name.endswith(".json")
        ]
    else:
        found = [Path(name) for name in glob.glob(place, recursive=True)]
    if not found:
        raise UserError(f"no saved runs in {place}: save some with pytest bench/ --benchmark-autosave")
    return sorted(found)


def read_history(
    place: str,
    keep: Callable[[str], bool] = lambda name: True,
    tell: Callable[[int, int], None] = lambda done, total: None,
) -> History:
    """Every bench of a store that ``keep`` accepts. A file that can't be read is noted, the rest used."""
    files = saved_files(place)
    index = Index()
    runs: list[dict[str, Any]] = []
    problems: list[str] = []
    for number, path in enumerate(files):
        entry = index.get(path)
        if entry is None:
            tell(number, len(files))
            entry = index.add(path)
        if entry["problem"]:
            problems.append(entry["problem"])
        else:
            runs.append(entry)
    runs.sort(key=lambda run: (run["time"], run["run"]))
    points: dict[str, list[Point]] = {}
    for run in runs:
        for name, (median_s, to_canary) in run["benches"].items():
            if keep(name):
                point = Point(run["run"], run["time"], run["commit"], median_s, to_canary)
                points.setdefault(name, []).append(point)
    series = [series_of(name, found) for name, found in points.items()]
    return History(tuple(series), len(runs), tuple(problems), ruptures_there())


def series_of(name: str, points: Sequence[Point]) -> Series:
    """A series with its steps; against the canary where every run has it."""
    relative = all(point.to_canary is not None for point in points)
    series = Series(name, tuple(points), (), relative)
    return Series(name, tuple(points), tuple(find_steps(series.values)), relative)


def ruptures_there() -> bool:
    """Whether the library that finds steps is installed."""
    import importlib.util

    return importlib.util.find_spec("ruptures") is not None


def find_steps(values: np.ndarray) -> list[Step]:
    """Lasting changes of level in positive values, shape (n,); none from fewer than 6, or without ruptures.

    Looked for in the newest MOST_RUNS.

    The noise is taken from differences of neighbours (a robust scale), which steps hardly touch.
    """
    if len(values) < LEAST_RUNS or not ruptures_there():
        return []
    import ruptures

    recent = values[-MOST_RUNS:]
    skipped = len(values) - len(recent)
    logs = np.log(recent)
    scale = float(np.median(np.abs(np.diff(logs)))) / 0.6745 / math.sqrt(2)
    scaled = (logs / max(scale, _LEAST_NOISE)).reshape(-1, 1)
    search = ruptures.KernelCPD(kernel="linear", min_size=_SEGMENT).fit(scaled)  # PELT in C
    ends = search.predict(pen=_PENALTY * math.log(len(logs)))
    edges = [0, *ends]
    levels = [float(np.median(logs[a:b])) for a, b in pairwise(edges)]
    return [Step(skipped + at, math.exp(levels[n + 1] - levels[n])) for n, at in enumerate(ends[:-1])]


class Index:
    """What each file says, by its path, size and time of change."""

    def __init__(self, folder: Path | None = None) -> None:
        self._path = (folder or cache_folder().parent) / f"history-{INDEX_VERSION}.jsonl"
        self._entries: dict[str, dict[str, Any]] = {}
        try:
            lines = self._path.read_bytes().splitlines()
        except OSError:
            lines = []
        for line in lines:
            try:
                entry = json.loads(line)
                self._entries[entry["key"]] = entry
            except (ValueError, TypeError, KeyError):
                continue  # a line of a run that was killed

    def get(self, path: Path) -> dict[str, Any] | None:
        """What is known of a file, or None."""
        return self._entries.get(_key(path))

    def add(self, path: Path) -> dict[str, Any]:
        """Read a file and note what it says, or why it can't be read."""
        entry: dict[str, Any] = {"key": _key(path), "run": path.name, "problem": "", "benches": {}}
        try:
            run = read_run(path)
            entry |= {"time": run.time or _changed(path), "commit": run.commit}
            for bench in run.benches.values():
                median_s = bench.median_s
                if median_s is not None and not bench.failed:
                    entry["benches"][bench.name] = (median_s, _to_canary(bench))
        except UserError as error:
            entry["problem"] = str(error)
        self._entries[entry["key"]] = entry
        self._append(entry)
        return entry

    def _append(self, entry: dict[str, Any]) -> None:
        """One write to a file opened for appending: lines of several writers never mix."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError:
            return  # no cache, no harm
        try:
            os.write(descriptor, json.dumps(entry).encode() + b"\n")
        finally:
            os.close(descriptor)


def _key(path: Path) -> str:
    status = os.stat(path)
    text = f"{os.path.abspath(path)} {status.st_size} {status.st_mtime_ns}"
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def _changed(path: Path) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds")


def _to_canary(bench: Any) -> float | None:
    ratios = bench.times().ratios if bench.canary_s else ()
    return math.exp(float(np.mean(ratios))) if ratios else None
