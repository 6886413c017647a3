"""Metric rows that only the built-in pipeline has: request latencies, memory traffic, what the system says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from flashperf.records import Interval, Metric
from flashperf.stats import t_interval

if TYPE_CHECKING:
    from flashperf.explain.record import Record

#: field of a run -> (title, unit, better, scale, note); means over a worker's runs, zeros included
_OF_RUNS = {
    "latency_p50_s": (
        "request latency p50",
        "ms",
        "lower",
        1e3,
        "from a request's arrival to its last token",
    ),
    "latency_p95_s": ("request latency p95", "ms", "lower", 1e3, ""),
    "latency_p99_s": ("request latency p99", "ms", "lower", 1e3, ""),
    "queued_s": ("queueing", "ms", "lower", 1e3, "mean from a request's arrival to its admission"),
    "page_faults": ("page faults", "per run", "lower", 1.0, ""),
    "checkpoint_wait_s": ("waiting for saved state", "ms", "lower", 1e3, "per run"),
    "runqueue_s": ("run-queue delay", "ms", "lower", 1e3, "ready but not running, per run"),
    "softirq_s": ("soft interrupts", "ms", "lower", 1e3, "on all cores, per run, in ticks of 10 ms"),
}
_WITHOUT_QUEUE = "this system has no /proc/self/schedstat or /proc/stat"


def pipeline_rows(record: Record) -> Iterator[Metric]:
    """Rows of the record's runs, probes and profiles; a record without them (an older one) has none."""
    runs = {mask: list(_values(record, mask)) for mask in (0, record.everything)}
    known = {name for found in runs.values() for _, run in found for name in run}
    if "page_faults" not in known:
        return
    for name, (title, unit, better, scale, note) in _OF_RUNS.items():
        if name in known:
            standard, flash = (_per_worker(runs[mask], name, scale) for mask in (0, record.everything))
            yield Metric(title, unit, better, standard, flash, _quotient(standard, flash), note)
        elif name in ("runqueue_s", "softirq_s"):
            yield Metric(title, unit, better, None, None, None, _WITHOUT_QUEUE)
    yield from _of_probes(record)
    yield from _staged(record)


def _values(record: Record, mask: int) -> Iterator[tuple[int, dict[str, float]]]:
    """(worker, run) of a variant in whole quads."""
    for line in record.groups:
        if line["group"] == "quad":
            for found, run in zip(line["masks"], line["runs"], strict=True):
                if found == mask:
                    yield line["worker"], run


def _per_worker(runs: list[tuple[int, dict[str, float]]], name: str, scale: float) -> Interval | None:
    """t over the workers' means; a variant that never has the field counts as zero."""
    workers: dict[int, list[float]] = {}
    for worker, run in runs:
        workers.setdefault(worker, []).append(scale * run.get(name, 0.0))
    return _interval([float(np.mean(values)) for values in workers.values()])


def _interval(values: list[float]) -> Interval | None:
    if len(values) > 1 and np.ptp(values) > 0:
        return t_interval(values)
    return Interval(values[0], values[0], values[0]) if values else None


def _quotient(standard: Interval | None, flash: Interval | None) -> Interval | None:
    """flash / standard, where neither can be zero."""
    if standard is None or flash is None or min(standard.low, flash.low) <= 0:
        return None
    ends = flash.low / standard.high, flash.high / standard.low
    return Interval(flash.value / standard.value, *ends, standard.confidence)


def _both(
    lines: list[dict[str, Any]], record: Record, value: Callable[[dict[str, Any]], float]
) -> list[Interval | None]:
    return [
        _interval([value(line) for line in lines if line["mask"] == mask]) for mask in (0, record.everything)
    ]


def _of_probes(record: Record) -> Iterator[Metric]:
    probes = [line for line in record.probes if "computed_rows" in line]
    if not probes:
        return
    share = _both(probes, record, lambda line: 100 * line["real_rows"] / line["computed_rows"])
    note = "tokens among the rows that are computed, the rest is padding"
    yield Metric("real tokens", "% of rows", "higher", share[0], share[1], _quotient(*share), note)
    made = _both(probes, record, lambda line: line["allocations"])
    yield Metric("allocations", "per run", "lower", made[0], made[1], _quotient(*made), "activation buffers")


def _staged(record: Record) -> Iterator[Metric]:
    """Bytes and bandwidth of streamed weights; the copies of a profiled run, by themselves or beside others."""
    lines = [line for line in record.profiles if "staged_bytes" in line]
    if not lines:
        return
    volume = _both(lines, record, lambda line: line["staged_bytes"] / 1e6)
    rate = _both(lines, record, lambda line: line["staged_bytes"] / line["staged_s"] / 1e9)
    note = "copies in memory stand in for a link"
    yield Metric("weights streamed", "MB per run", "lower", volume[0], volume[1], _quotient(*volume), note)
    yield Metric("streaming rate", "GB/s", "higher", rate[0], rate[1], _quotient(*rate), "")
