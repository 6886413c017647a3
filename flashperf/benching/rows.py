"""What one bench gave, put together from its processes, and how it stands in pytest-benchmark's record."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flashperf.benching.pool import Visit
from flashperf.gate.canaries import SOURCE_HASH, VERSION
from flashperf.records import Case, Environment, Interval, Measurement, Mechanism
from flashperf.stats import ratio_interval, trimmed_mean
from flashperf.store import to_json

SAME_PROCESS, PROCESSES = "blocks of one process", "processes"


@dataclass(frozen=True)
class Row:
    """What one case gave: its measurement and its time over that of its standard, paired in each process.

    samples_per_process: how the samples divide; canary_s: seconds of the canary's samples by process, empty
    where one process measured.
    """

    measurement: Measurement
    standard: Case
    ratio: Interval
    blocks: int
    samples_per_process: tuple[int, ...] = ()
    canary: str = ""
    canary_s: tuple[tuple[float, ...], ...] = ()

    @property
    def processes(self) -> int:
        return max(1, len(self.samples_per_process))


def merged_row(
    visits: Sequence[Visit], standard: Case, canary: str, environment_now: Environment
) -> tuple[Row, Measurement]:
    """One row of all processes: samples one after another, the ratio over the processes."""
    measured, base = (
        _one([getattr(visit, side) for visit in visits], environment_now) for side in ("measured", "standard")
    )
    row = Row(
        measured,
        standard,
        ratio_interval([trimmed_mean(visit.log_ratios) for visit in visits]),
        sum(len(visit.log_ratios) for visit in visits),
        tuple(len(visit.measured.samples_s) for visit in visits),
        canary,
        tuple(visit.canary_s for visit in visits),
    )
    return row, base


def _one(parts: list[Measurement], environment_now: Environment) -> Measurement:
    """All processes' samples as one measurement, with the worst check and the median first call."""
    return dataclasses.replace(
        parts[0],
        check=max((part.check for part in parts), key=lambda check: check.max_abs_error),
        samples_s=tuple(s for part in parts for s in part.samples_s),
        cpu_s=tuple(s for part in parts for s in part.cpu_s),
        first_call_s=float(np.median([part.first_call_s for part in parts])),
        environment=environment_now,
        disturbed=sum(part.disturbed for part in parts),
    )


def standard_of(mechanism: Mechanism, case: Case) -> Case:
    """The case of the variant that this one is measured against: the standard, else the first of its backend."""
    for variant in (mechanism.standard, *mechanism.variants):
        standard = case.with_variant(variant)
        if case.backend in mechanism.variants[variant] and not mechanism.supports(standard):
            return standard
    return case


def extra_info(mechanism: Mechanism, row: Row, standard: Measurement) -> dict[str, Any]:
    """What goes beside the samples into pytest-benchmark's record; plain JSON, seconds, bytes, FLOPs."""
    m, case = row.measurement, row.measurement.case
    median_s = float(np.median(m.samples_s))
    tolerance = mechanism.tolerance(case)
    over = PROCESSES if row.processes > 1 else SAME_PROCESS
    info: dict[str, Any] = {
        "case": case.id,
        "seed": case.seed,
        "standard": row.standard.id,
        "ratio_to_standard": {"blocks": row.blocks, "interval_over": over} | to_json(row.ratio),
        "flops": m.cost.flops,
        "bytes": m.cost.bytes,
        "ideal_bytes": mechanism.ideal_bytes(case),
        "launches": m.cost.launches,
        "gflop_per_s": m.cost.flops / median_s * 1e-9,
        "gbyte_per_s": m.cost.bytes / median_s * 1e-9,
        "error": m.check,
        "tolerance": tolerance,
        "cache": m.cache_state,
        "timer": m.timer,
        "calls_per_sample": m.calls_per_sample,
        "first_call_s": m.first_call_s,
        "samples_s": m.samples_s,
        "cpu_s": m.cpu_s,
        "standard_samples_s": standard.samples_s,
        "disturbed_samples": m.disturbed,
        "stand_in": mechanism.stand_in.get(case.variant, "") if case.backend == "cpu" else "",
    }
    if row.samples_per_process:
        info["processes"] = {
            "samples": row.samples_per_process,
            "canary": row.canary,
            "canary_version": f"{VERSION} {SOURCE_HASH}",
            "canary_s": row.canary_s,
        }
    if m.details:
        info["details"] = m.details
    if m.environment:
        info["environment"] = m.environment.comparable_key
        info["busy"] = m.environment.busy_reason
    return to_json(info)
