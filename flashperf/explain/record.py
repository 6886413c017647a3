"""The lines of an explanation's record, sorted by kind and checked."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from flashperf.attribution import CallCounts, Group, Observation, SwitchLevels, active_switches
from flashperf.attribution.design import CONFIRM, PAIR, QUAD
from flashperf.errors import UserError
from flashperf.explain.packed import unpack_counts
from flashperf.records import Environment
from flashperf.store import from_json


@dataclass
class Record:
    """The lines of one run, sorted by kind."""

    explain: dict[str, Any]
    environments: list[Environment] = field(default_factory=list)
    groups: list[dict[str, Any]] = field(default_factory=list)
    isolated: dict[int, dict[str, Any]] = field(default_factory=dict)
    counts: CallCounts | None = None
    advice: list[dict[str, Any]] = field(default_factory=list)
    probes: list[dict[str, Any]] = field(default_factory=list)
    profiles: list[dict[str, Any]] = field(default_factory=list)
    quality: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    end: dict[str, Any] | None = None

    @property
    def switches(self) -> list[SwitchLevels]:
        """All switches of the run, in the order of its record."""
        return [SwitchLevels(**switch) for switch in self.explain["switches"]]

    @property
    def everything(self) -> int:
        """The mask of Flash."""
        return (1 << len(active_switches(self.switches))) - 1


def sort_lines(lines: Iterable[dict[str, Any]]) -> Record:
    """Sort the lines of a record by kind. Raises UserError if it is not the record of an ``explain`` run."""
    record: Record | None = None
    for line in lines:
        kind = line.get("kind")
        if kind == "explain":
            record = Record(line)
        elif kind == "header":
            continue
        elif record is None:
            raise UserError("this is not the record of an explain run: it does not begin with one")
        elif kind == "environment":
            record.environments.append(from_json(Environment, line["environment"]))
        elif kind == "group":
            record.groups.append(checked_group(line))
        elif kind == "counts":
            record.counts = unpack_counts(line)
        elif kind == "isolated":
            record.isolated[line["worker"]] = line["times"]
        elif kind == "note":
            record.notes.append(line["text"])
        elif kind == "end":
            record.end = line
        else:
            lists = {"probe": record.probes, "profile": record.profiles}
            lists |= {"advice": record.advice, "quality": record.quality}
            if kind in lists:
                lists[kind].append(line)
    if record is None:
        raise UserError(
            "this is not the record of an explain run: it has no line that says what was explained"
        )
    if not record.environments:
        raise UserError("this record ends before anything was measured")
    return record


def checked_group(line: dict[str, Any]) -> dict[str, Any]:
    """A measured group as it is used below. Raises UserError naming the field that can't be right."""
    wanted = {
        "worker": int,
        "cycle": int,
        "group": str,
        "switch": int,
        "masks": list,
        "runs": list,
        "repeats": int,
    }
    for name, kind in wanted.items():
        if not isinstance(line.get(name), kind):
            raise UserError(f"a group in this record is damaged: {name} is {line.get(name)!r}")
    if line["group"] not in (QUAD, PAIR, CONFIRM) or not 0 < line.get("weight", 0) < math.inf:
        raise UserError(
            f"a group in this record is damaged: kind {line['group']!r}, weight {line.get('weight')!r}"
        )
    for run in line["runs"]:
        for name in ("seconds", "cpu_s"):
            value = run.get(name) if isinstance(run, dict) else None
            least = sys.float_info.min if name == "seconds" else 0
            if not isinstance(value, int | float) or not least <= value < math.inf:
                raise UserError(f"a group in this record is damaged: a run's {name} is {value!r}")
    if len(line["runs"]) != len(line["masks"]):
        raise UserError(
            f"a group in this record is damaged: {len(line['masks'])} mixtures, {len(line['runs'])} runs"
        )
    return line


def observations_of(record: Record) -> list[Observation]:
    """The groups of a record as observations."""
    return [
        Observation(
            line["worker"],
            line["cycle"],
            Group(line["group"], line["switch"], tuple(line["masks"]), line["weight"]),
            tuple(run["seconds"] for run in line["runs"]),
        )
        for line in record.groups
    ]
