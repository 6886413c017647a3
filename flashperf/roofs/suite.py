"""Measures the bench cases of mechanisms for a roofline, several processes a case, and keeps them in a record."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from pathlib import Path

from flashperf import environment, registry
from flashperf.errors import UserError
from flashperf.progress import NullProgress, ProgressSink
from flashperf.records import Case, Mechanism
from flashperf.roofs.cold import CHECKED_BYTES
from flashperf.roofs.cold_check import ColdCheck
from flashperf.roofs.model import Roofs
from flashperf.roofs.points import Point, RooflineRun
from flashperf.roofs.storage import read_roofs, write_roofs
from flashperf.store import RecordWriter, from_json, read_records
from flashperf.workers import WorkerPool

PROCESSES = 6
BUDGET_S = 120.0


def bench_cases(names: Iterable[str], backend: str) -> tuple[list[tuple[Mechanism, Case]], list[str]]:
    """The bench cases of mechanisms on a backend that can run here, and what can't, with the reason.

    The mechanisms take turns, so that each has something where the time doesn't suffice for all.
    """
    by_mechanism: list[list[tuple[Mechanism, Case]]] = []
    left_out: list[str] = []
    for name in names:
        mechanism = registry.mechanism(name)
        found: list[tuple[Mechanism, Case]] = []
        by_mechanism.append(found)
        for case in registry.cases(mechanism, "bench", [backend]):
            why_not, cost = registry.why_not(mechanism, case), mechanism.cost(case)
            if not why_not and cost.flops + cost.bytes == 0:
                why_not = "it declares no work"
            if why_not:
                left_out.append(f"{case.id}: {why_not}")
            else:
                found.append((mechanism, case))
    turns = [case for turn in zip_longest(*by_mechanism) for case in turn if case is not None]
    return turns, left_out


def measure_suite(
    names: Sequence[str],
    roofs: Roofs,
    *,
    backend: str = "cpu",
    budget_s: float = BUDGET_S,
    processes: int = PROCESSES,
    cold: bool = True,
    record: Path | None = None,
    progress: ProgressSink | None = None,
) -> RooflineRun:
    """Time every bench case of the mechanisms, warm and cold, and keep it in ``record`` (a new file).

    On a CPU with one thread unless a case asks for more; on a GPU by the device's clock. Raises WrongResult if a
    kernel is wrong, UserError if nothing can run here or the roofs are those of another kind of device; cases for
    which no time is left are named in ``left_out``.
    """
    if (backend == "cpu") != (roofs.backend == "cpu"):
        raise UserError(f"{backend} kernels can't be placed under the roofs of {roofs.environment.device}")
    cases, left_out = bench_cases(names, backend)
    without = [case for mechanism, case in cases if not roofs.units(mechanism.arithmetic(case))]
    left_out += [f"{case.id}: no unit was measured that computes in its format" for case in without]
    cases = [(mechanism, case) for mechanism, case in cases if case not in without]
    if not cases:
        raise UserError(f"nothing to measure: {'; '.join(left_out) or 'no mechanism was named'}")
    told = progress or NullProgress()
    told.phase("roofline", f"{len(cases)} cases, {processes} processes each")
    busy = environment.capture(1).busy_reason
    points: list[Point] = []
    writer = RecordWriter(record) if record else None
    try:
        if writer:
            write_roofs(writer, roofs)
        with WorkerPool(processes, "flashperf.roofs.cases:CaseTimer", {}, {}, {}) as pool:
            began = time.monotonic()
            for n, (mechanism, case) in enumerate(cases):
                spent = time.monotonic() - began
                if n and spent / n * (n + 1) > budget_s:
                    left_out += [f"{other.id}: no time was left" for _, other in cases[n:]]
                    break
                told.update(n / len(cases), spent / n * (len(cases) - n) if n else float("nan"), [case.id])
                new = _time_case(pool, mechanism, case, cold)
                points += new
                for point in new if writer else ():
                    writer.write("point", point=point)  # type: ignore[union-attr]
            check = _check_cold(pool) if cold and backend == "cpu" else None
        if writer and check:
            writer.write("cold_check", check=check)
        if writer:
            writer.write("end", busy_reason=busy, left_out=left_out)
    finally:
        if writer:
            writer.close()
    return RooflineRun(roofs, tuple(points), busy, tuple(left_out), check)


def _check_cold(pool: WorkerPool) -> ColdCheck:
    """How fast plain loads come from caches that were emptied as for the cold calls, in every process."""
    return ColdCheck(CHECKED_BYTES, tuple(float(w.call("cold_load_rate")) for w in pool.workers))


def _time_case(pool: WorkerPool, mechanism: Mechanism, case: Case, cold: bool) -> list[Point]:
    """The points of one case; the first process checks it before the others time it."""
    times: dict[str, list[float]] = defaultdict(list)
    for number, worker in enumerate(pool.workers):
        answer = worker.call("time_case", case_id=case.id, check=number == 0, cold=cold)
        for state, seconds in answer.items():
            times[state].append(seconds)
    roles = {mechanism.standard: "standard", mechanism.flash: "flash"}
    return [
        Point(
            case_id=case.id,
            cost=mechanism.cost(case),
            ideal_bytes=mechanism.ideal_bytes(case),
            number_format=mechanism.arithmetic(case),
            cache=state,
            role=roles.get(case.variant, ""),
            per_process_s=tuple(values),
            stand_in=mechanism.stand_in.get(case.variant, ""),
        )
        for state, values in times.items()
    ]


def read_run(path: Path) -> RooflineRun:
    """The run in a record. Raises RecordError, naming the file, if it isn't one."""
    records = read_records(path)
    roofs = read_roofs(records)
    points = tuple(from_json(Point, line.get("point")) for line in records.of("point"))
    end = next(records.of("end"), {})
    left_out = tuple(end.get("left_out", ())) if end else ("the run was interrupted",)
    line = next(records.of("cold_check"), None)
    check = from_json(ColdCheck, line.get("check")) if line else None
    return RooflineRun(roofs, points, str(end.get("busy_reason", "")), left_out, check)
