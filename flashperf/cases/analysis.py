"""From a record to what was measured of every case, and to its outcome. Pure but for reading the file."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flashperf.blocks import Block
from flashperf.cases.definition import OpenCase
from flashperf.cases.diagnosis import Outcome, outcome
from flashperf.cases.guards import Machine
from flashperf.cases.measured import MARGIN, CaseMeasured, PairMeasured, PathMeasured, PointMeasured
from flashperf.cases.registry import case_named
from flashperf.errors import UserError
from flashperf.records import Environment
from flashperf.stats import compare_log_ratios, ratio_interval, trimmed_mean
from flashperf.store import Records, from_json, read_records

Line = Mapping[str, Any]


@dataclass(frozen=True)
class CaseResult:
    """A case, what was measured of it (None: nothing), and its outcome. ``failures``: what broke while measuring."""

    case: OpenCase
    measured: CaseMeasured | None
    outcome: Outcome
    failures: tuple[str, ...] = ()


@dataclass(frozen=True)
class CasesReport:
    """All cases of a run. ``stopped``: "done", "budget", "interrupted", or "killed" where the record has no end."""

    environment: Environment
    results: tuple[CaseResult, ...]
    seconds: float
    stopped: str

    @property
    def partial(self) -> bool:
        """Whether the run ended before its end."""
        return self.stopped != "done"

    @property
    def failed(self) -> bool:
        """Whether a case broke: a wrong result, a path that did not run, a worker that died."""
        return any(result.failures for result in self.results)


def read_report(path: Path) -> CasesReport:
    """The report of a record of ``flashperf cases``. Raises UserError if it is none, RecordError if it is damaged."""
    records = read_records(path)
    head = next(records.of("cases"), None)
    where = next(records.of("environment"), None)
    if head is None or where is None:
        raise UserError(f"{path} is not a record of flashperf cases")
    machine = _machine(records)
    end: Line = next(records.of("end"), {"seconds": math.nan, "stopped": "killed"})
    files = head.get("files", {})
    results = [
        _result(
            case_named(_found(files[case_id], path) if case_id in files else case_id),
            machine,
            [line for line in records.lines if line.get("case") == case_id],
            end["stopped"],
        )
        for case_id in head["ids"]
    ]
    return CasesReport(
        from_json(Environment, where["environment"]), tuple(results), float(end["seconds"]), end["stopped"]
    )


def _found(file: str, record: Path) -> str:
    """The file of a definition, as noted in a record: below this folder, or below one that the record is in."""
    folders = (Path.cwd(), *record.resolve().parents)
    return next((str(folder / file) for folder in folders if (folder / file).is_file()), file)


_NEVER_BEGUN = {
    "done": "too little was measured",
    "budget": "the budget ended before it",
    "interrupted": "interrupted before it",
    "killed": "the record ends before it",
}


def _result(case: OpenCase, machine: Machine, lines: Sequence[Line], stopped: str) -> CaseResult:
    """A case from its own lines. ``stopped``: how the run ended."""
    failures = tuple(_failure(case, line) for line in lines if line["kind"] == "failure")
    skipped = next((line["why"] for line in lines if line["kind"] == "skipped"), "")
    measured = measured_case(case, lines)
    why = skipped or "; ".join(failures) or _NEVER_BEGUN.get(stopped, stopped)
    return CaseResult(case, measured, outcome(case, machine, measured, why), failures)


def _failure(case: OpenCase, line: Line) -> str:
    """What broke, and where if it is known."""
    if "path" not in line:
        return str(line["why"])
    return f"{line['path']} against {case.baseline} at {case.points[line['point']].label}: {line['why']}"


def _machine(records: Records) -> Machine:
    found = dict(next(records.of("machine"))["machine"])
    return Machine(**{**found, "isa": frozenset(found["isa"])})


def measured_case(case: OpenCase, lines: Sequence[Line]) -> CaseMeasured | None:
    """What the lines of one case say; None if the headline pair has no two processes."""
    points = []
    for number, point in enumerate(case.points):
        own = [line for line in lines if line.get("point") == number]
        read = _fresh_pairs(case, own) if case.fresh else _block_pairs(own)
        points.append(PointMeasured(point.label, point.x, point.role, read))
    if case.optimised not in points[case.headline].pairs:
        return None
    prices = [line for line in lines if line["kind"] == "dispatch"]
    called_s, nested_s = (
        statistics.median(line[name] for line in prices) if prices else math.nan
        for name in ("called_s", "nested_s")
    )
    return CaseMeasured(case.optimised, case.headline, points, case.axis, called_s, nested_s)


def _block_pairs(lines: Sequence[Line]) -> dict[str, PairMeasured]:
    """Pairs by path from double blocks: one estimate per process."""
    blocks: dict[str, dict[int, list[Block]]] = defaultdict(lambda: defaultdict(list))
    sides: dict[str, list[Any]] = defaultdict(list)
    for line in lines:
        if line["kind"] == "block":
            blocks[line["path"]][line["worker"]].append(from_json(Block, line["block"]))
        elif line["kind"] == "prepared":
            sides[line["path"]].append(line["sides"])
    found = {}
    for path, by_worker in blocks.items():
        if len(by_worker) < 2:
            continue
        ratios = [trimmed_mean([block.log_ratio for block in own]) for own in by_worker.values()]
        count = sum(map(len, by_worker.values()))
        base, other = (_path(by_worker, "AB"[n], [pair[n] for pair in sides[path]]) for n in (0, 1))
        found[path] = PairMeasured(path, base, other, compare_log_ratios(ratios, MARGIN, blocks=count))
    return found


def _path(by_worker: Mapping[int, Sequence[Block]], side: str, prepared: Sequence[Line]) -> PathMeasured:
    logs = [
        np.mean([math.log(s.wall_s) for block in own for s in block.of(side)]) for own in by_worker.values()
    ]
    parts = {
        name: statistics.median(one["parts_s"][name] for one in prepared)
        for name in (prepared[0]["parts_s"] or {})
    }
    first = statistics.median(one["first_s"] for one in prepared)
    return PathMeasured(ratio_interval(logs), prepared[0]["facts"], parts, first)


def _fresh_pairs(case: OpenCase, lines: Sequence[Line]) -> dict[str, PairMeasured]:
    """Pairs by path from fresh processes: the mean call, process n of a path against process n of the baseline."""
    stories: dict[str, dict[int, Line]] = defaultdict(dict)
    for line in lines:
        if line["kind"] == "fresh":
            stories[line["path"]][line["worker"]] = line["story"]
    base = stories.pop(case.baseline, {})
    found = {}
    for path, own in stories.items():
        both = sorted(set(base) & set(own))
        if len(both) < 2:
            continue
        ratios = [math.log(np.mean(own[n]["times_s"]) / np.mean(base[n]["times_s"])) for n in both]
        before, after = (_told([side[n] for n in both]) for side in (base, own))
        found[path] = PairMeasured(path, before, after, compare_log_ratios(ratios, MARGIN))
    return found


def _told(stories: Sequence[Line]) -> PathMeasured:
    """Of one path: the mean call, calls and compilations, and what calls cost beyond the median one."""
    means = [math.log(np.mean(story["times_s"])) for story in stories]
    beyond = [np.mean(story["times_s"]) - np.median(story["times_s"]) for story in stories]
    facts = {
        "calls": float(len(stories[0]["times_s"])),
        "compilations": statistics.fmean(story["compilations"] for story in stories),
        "median_s": statistics.median(float(np.median(story["times_s"])) for story in stories),
        "largest_s": statistics.median(max(story["times_s"]) for story in stories),
        "steady_s": statistics.median(story["steady_s"] for story in stories),
    }
    first = statistics.median(story["times_s"][0] for story in stories)
    compiling = {"compiling": float(np.mean(beyond))} if facts["compilations"] else {}
    return PathMeasured(ratio_interval(means), facts, compiling, first)
