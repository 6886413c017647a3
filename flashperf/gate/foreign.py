"""Saved runs of other tools: pyperf, google-benchmark, nvbench, hyperfine.

Each reader takes the parsed JSON and gives a run, or None if it isn't its tool's. Where a tool starts a process
per sample (hyperfine) or per group of samples (pyperf) those are the processes; otherwise all samples are of one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from flashperf.gate.runs import SavedBench, SavedRun, bad_samples, collect, plain_bench

_UNITS_S = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}


def _summary(name: str, key: Mapping[str, Any], value: Any, what: str) -> SavedBench:
    """A bench of which there is one number, and why nothing can be tested."""
    usable = isinstance(value, int | float) and not bad_samples([[float(value)]])
    return SavedBench(name, key=key, problem=what, summary_s=float(value) if usable else None)


def hyperfine(data: Mapping[str, Any], path: Path) -> SavedRun | None:
    """``hyperfine --export-json``: every run of a command is a process of its own."""
    results = data.get("results")
    if (
        not isinstance(results, list)
        or not results
        or not all(isinstance(r, dict) and "command" in r for r in results)
    ):
        return None
    benches = []
    for result in results:
        name = str(result["command"])
        if result.get("times"):
            benches.append(plain_bench(name, [[t] for t in result["times"]], {}))
        else:
            benches.append(_summary(name, {}, result.get("median"), "a summary without its runs"))
    return collect(
        path.name,
        "hyperfine",
        benches,
        notes=(f"{path.name}: hyperfine doesn't say on which machine it ran",),
    )


def pyperf(data: Mapping[str, Any], path: Path) -> SavedRun | None:
    """pyperf's suites: the values of a worker process are one process; calibration and warm-ups are left out."""
    benchmarks = data.get("benchmarks")
    if (
        not isinstance(benchmarks, list)
        or not benchmarks
        or not all(isinstance(b, dict) and "runs" in b for b in benchmarks)
    ):
        return None
    common = data.get("metadata") or {}
    benches = []
    for one in benchmarks:
        metadata = {**common, **(one.get("metadata") or {})}
        first: Mapping[str, Any] = next(
            (run.get("metadata", {}) for run in one["runs"] if isinstance(run, dict)), {}
        )
        metadata = {**first, **metadata}
        key = {
            "device": metadata.get("cpu_model_name", "unknown"),
            "python": metadata.get("python_version", "unknown"),
        }
        values = [run["values"] for run in one["runs"] if isinstance(run, dict) and run.get("values")]
        name = str(metadata.get("name", "unnamed"))
        if metadata.get("unit", "second") != "second":
            benches.append(SavedBench(name, key=key, problem=f"is in {metadata['unit']}s, not a time"))
        else:
            benches.append(plain_bench(name, values, key))
    return collect(path.name, "pyperf", benches)


def google_benchmark(data: Mapping[str, Any], path: Path) -> SavedRun | None:
    """google-benchmark: repetitions of one name are samples of one process; aggregates are left out."""
    context = data.get("context")
    benchmarks = data.get("benchmarks")
    if not isinstance(context, dict) or not isinstance(benchmarks, list):
        return None
    key = {name: context.get(name, "unknown") for name in ("host_name", "num_cpus", "library_build_type")}
    samples: dict[str, list[Any]] = {}
    failed: dict[str, str] = {}
    medians: dict[str, Any] = {}
    for one in benchmarks:
        name = str(one.get("run_name", one.get("name", "unnamed")))
        unit_s = _UNITS_S.get(str(one.get("time_unit", "ns")))
        if one.get("error_occurred"):
            failed[name] = str(one.get("error_message", "it failed"))
        elif one.get("run_type") == "aggregate":
            if one.get("aggregate_name") == "median" and unit_s:
                medians[name] = _times(one.get("real_time"), unit_s)
        elif unit_s:
            samples.setdefault(name, []).append(_times(one.get("real_time"), unit_s))
    benches = [SavedBench(name, key=key, problem=text, failed=True) for name, text in failed.items()]
    benches += [plain_bench(name, [values], key) for name, values in samples.items() if name not in failed]
    what = "a summary without its repetitions (leave out --benchmark_report_aggregates_only)"
    benches += [
        _summary(name, key, value, what) for name, value in medians.items() if name not in {*samples, *failed}
    ]
    return collect(path.name, "google-benchmark", benches, time=str(context.get("date", "")))


def _times(value: Any, factor: float) -> Any:
    return value * factor if isinstance(value, int | float) and not isinstance(value, bool) else value


def nvbench(data: Mapping[str, Any], path: Path) -> SavedRun | None:
    """nvbench: a bench is a state; samples lie in binary files beside the JSON, else there is the mean only."""
    if not isinstance(data.get("devices"), list) or not isinstance(data.get("benchmarks"), list):
        return None
    devices = {one.get("id"): one.get("name", "unknown") for one in data["devices"] if isinstance(one, dict)}
    benches = []
    for one in data["benchmarks"]:
        for state in one.get("states") or []:
            name = f"{one.get('name', 'unnamed')} {state.get('name', '')}".strip()
            key = {"device": devices.get(state.get("device"), "unknown")}
            if state.get("is_skipped"):
                reason = str(state.get("skip_reason", "skipped"))
                benches.append(SavedBench(name, key=key, problem=f"skipped there: {reason}"))
                continue
            benches.append(_nvbench_state(name, key, state.get("summaries") or [], path.parent))
    return collect(path.name, "nvbench", benches)


def _nvbench_state(name: str, key: Mapping[str, Any], summaries: list[Any], folder: Path) -> SavedBench:
    mean: Any = None
    for summary in summaries:
        tag = str(summary.get("tag", summary.get("name", "")))
        values = {
            str(v.get("name")): v.get("value") for v in summary.get("data") or [] if isinstance(v, dict)
        }
        if tag.endswith("cold/sample_times") and "filename" in values:
            samples = _float_file(folder / str(values["filename"]))
            if samples:
                return plain_bench(name, [samples], key)
        if tag.endswith("cold/time/gpu/mean") or tag == "Average GPU Time (Cold)":
            mean = values.get("value")
    try:
        mean = float(mean)
    except (TypeError, ValueError):
        return SavedBench(name, key=key, problem="holds no cold GPU time")
    return _summary(name, key, mean, "a mean without samples (write them with nvbench --jsonbin)")


def _float_file(path: Path) -> list[float]:
    """Little-endian 32-bit floats, as ``--jsonbin`` writes them; empty if the file isn't there."""
    try:
        raw = path.read_bytes()
    except OSError:
        return []
    return list(struct.unpack(f"<{len(raw) // 4}f", raw[: len(raw) // 4 * 4]))


#: Tried in this order; nvbench's and google-benchmark's files share a field name.
FORMATS: tuple[Callable[[Mapping[str, Any], Path], SavedRun | None], ...] = (
    hyperfine,
    pyperf,
    nvbench,
    google_benchmark,
)
