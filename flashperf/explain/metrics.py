"""The metrics of both variants side by side, as the two source documents list them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from flashperf.explain.pipeline_rows import pipeline_rows
from flashperf.records import Attribution, Interval, Metric
from flashperf.stats import ratio_interval, t_interval

if TYPE_CHECKING:
    from flashperf.explain.record import Record

_Both = tuple[Interval | None, Interval | None]
_Runs = dict[int, dict[int, list[dict[str, float]]]]  # mask -> worker -> runs


def pipeline_metrics(record: Record, attribution: Attribution) -> Iterator[Metric]:
    """One row per metric; a missing value has a note that says why."""
    runs = _runs_of_both(record)
    generated = record.explain.get("generated_tokens", 0)
    latency = _from_runs(runs, record, lambda run: run["seconds"])
    yield Metric("task latency", "s", "lower", *latency, attribution.total)
    if all("first_s" in run for workers in runs.values() for found in workers.values() for run in found):
        first = _from_runs(runs, record, lambda run: run["first_s"])
        yield Metric(
            "time to first token", "s", "lower", *first, _ratio(runs, record, lambda run: run["first_s"])
        )
    if generated:
        rate = lambda run: generated / run["seconds"]  # noqa: E731
        yield Metric(
            "throughput", "tokens/s", "higher", *_from_runs(runs, record, rate), _ratio(runs, record, rate)
        )
        real = record.explain.get("real_tokens", 0)
        if real:
            each = lambda run: run["seconds"] / real * 1e6  # noqa: E731
            times = _from_runs(runs, record, each)
            note = f"{real} tokens of prompts and continuations"
            yield Metric("time per real token", "µs", "lower", *times, attribution.total, note)
    yield from _memory(record)
    use = lambda run: run["cpu_s"] / run["seconds"]  # noqa: E731
    note = "of one core"
    yield Metric(
        "CPU utilisation", "%", "", *_from_runs(runs, record, use, 100), _ratio(runs, record, use), note
    )
    yield from pipeline_rows(record)
    yield from _quality(record)
    yield from _kernel_share(record)
    yield from _energy(record)


def _runs_of_both(record: Record) -> _Runs:
    """The runs of Standard and of Flash in whole groups, by worker."""
    found: _Runs = {0: defaultdict(list), record.everything: defaultdict(list)}
    for line in record.groups:
        for mask, run in zip(line["masks"], line["runs"], strict=True):
            if mask in found and line["group"] == "quad":
                found[mask][line["worker"]].append(run)
    return found


def _log_means(workers: dict[int, list[dict[str, float]]], value: Callable) -> dict[int, float]:
    return {worker: float(np.mean(np.log([value(run) for run in runs]))) for worker, runs in workers.items()}


def _from_runs(runs: _Runs, record: Record, value: Callable, scale: float = 1.0) -> _Both:
    """Geometric means of both variants, t over workers, in logs."""
    found: list[Interval | None] = []
    for mask in (0, record.everything):
        means = list(_log_means(runs[mask], value).values())
        if not means:
            found.append(None)
            continue
        ratio = ratio_interval(means)
        found.append(Interval(ratio.value * scale, ratio.low * scale, ratio.high * scale, ratio.confidence))
    return found[0], found[1]


def _ratio(runs: _Runs, record: Record, value: Callable) -> Interval | None:
    standard, flash = (_log_means(runs[mask], value) for mask in (0, record.everything))
    shared = sorted(set(standard) & set(flash))
    return ratio_interval([flash[w] - standard[w] for w in shared]) if shared else None


def _two(lines: list[dict[str, Any]], record: Record, name: str, scale: float = 1.0) -> list[Interval | None]:
    """Intervals of one field for Standard and Flash; a single value has no width."""
    found: list[Interval | None] = []
    for mask in (0, record.everything):
        values = [line[name] * scale for line in lines if line["mask"] == mask and name in line]
        if len(values) > 1 and np.ptp(values) > 0:
            found.append(t_interval(values))
        else:
            found.append(Interval(values[0], values[0], values[0]) if values else None)
    return found


def _memory(record: Record) -> Iterator[Metric]:
    standard, flash = _two(record.probes, record, "peak_bytes", 1e-6)
    if standard or flash:
        yield Metric(
            "peak memory",
            "MB",
            "lower",
            standard,
            flash,
            _quotient(standard, flash),
            "resident, beyond the bare process",
        )


def _quotient(standard: Interval | None, flash: Interval | None) -> Interval | None:
    """flash / standard without an interval of its own: the two were not measured in pairs."""
    if standard is None or flash is None or standard.value == 0:
        return None
    return Interval(
        flash.value / standard.value,
        flash.low / standard.high,
        flash.high / standard.low,
        standard.confidence,
    )


def _quality(record: Record) -> Iterator[Metric]:
    note = record.explain.get("no_quality", "")
    if note:
        yield Metric("bits per byte", "", "lower", None, None, None, note)
        return
    if not record.quality:
        return
    size = record.quality[0]["n_bytes"]
    for name, title, unit, better, scale in (
        ("bits_per_byte", "bits per byte", "", "lower", 1.0),
        ("accuracy", "next-byte accuracy", "%", "higher", 100.0),
    ):
        standard, flash = _two(record.quality, record, name, scale)
        note = f"{size} bytes of held-out text"
        yield Metric(title, unit, better, standard, flash, _quotient(standard, flash), note)


def _kernel_share(record: Record) -> Iterator[Metric]:
    lines = [{**line, "share": line["kernel_s"] / line["seconds"]} for line in record.profiles]
    standard, flash = _two(lines, record, "share", 100)
    if standard or flash:
        yield Metric("kernel-time share", "%", "", standard, flash, _quotient(standard, flash))


def _energy(record: Record) -> Iterator[Metric]:
    note = record.explain.get("no_energy", "")
    if note:
        yield Metric("energy", "J", "lower", None, None, None, note)
