"""Reads saved runs: this project's own (in pytest-benchmark's files), and those of other tools; tells them apart.

A file that can't be used raises UserError with one line; a bench that can't be used gets a problem of its own, so
that the rest is still judged.
"""

from __future__ import annotations

import glob
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flashperf.errors import UserError
from flashperf.gate.foreign import FORMATS
from flashperf.gate.runs import SavedBench, SavedRun, bad_samples, collect, key_difference, plain_bench

LARGEST_FILE_BYTES = 256 << 20


def read_run(path: str | Path) -> SavedRun:
    """A saved run from a JSON file. Raises UserError if it is missing, too large, no JSON, or of no known tool."""
    path = Path(path)
    data = _json(path)
    if isinstance(data, dict):
        if isinstance(data.get("benchmarks"), list) and "machine_info" in data:
            return pytest_benchmark_run(data, path.name)
        for read in FORMATS:
            run = read(data, path)
            if run is not None:
                return run
    raise UserError(
        f"{path} is of no tool that is known here: pytest-benchmark, pyperf, google-benchmark, nvbench, hyperfine"
    )


def read_runs(text: str) -> SavedRun:
    """A file, or a folder or pattern: its files as the runs of one side, each a process more.

    Raises UserError if there is none, or none that can be read; of several, those that can't be are noted.
    """
    path = Path(text)
    if path.is_file() or not (path.is_dir() or "*" in text):
        return read_run(path)
    files = sorted(path.rglob("*.json") if path.is_dir() else map(Path, glob.glob(text, recursive=True)))
    runs, problems = [], []
    for file in files:
        try:
            runs.append(read_run(file))
        except UserError as error:
            problems.append(str(error))
    if not runs:
        raise UserError(problems[0] if problems else f"no files match {text}")
    return merge(runs, text, problems)


def merge(runs: Sequence[SavedRun], label: str, problems: Sequence[str] = ()) -> SavedRun:
    """Several runs as one: the processes of each bench together. A bench whose keys differ gets a problem."""
    benches: dict[str, SavedBench] = {}
    for run in runs:
        for name, bench in run.benches.items():
            known = benches.get(name)
            if known is None or bench.failed:
                benches[name] = bench
            elif known.problem or bench.problem:
                benches[name] = known if known.problem else bench
            elif known.key != bench.key:
                benches[name] = SavedBench(
                    name, problem=f"its files differ: {key_difference(known.key, bench.key)}"
                )
            else:
                samples, canary_s = known.samples_s + bench.samples_s, known.canary_s + bench.canary_s
                benches[name] = SavedBench(name, samples, canary_s, known.canary, known.key)
    notes = (*dict.fromkeys(note for run in runs for note in run.notes), *problems)
    return SavedRun(f"{label} ({len(runs)} files)", runs[0].tool, benches, notes=notes)


def _json(path: Path) -> Any:
    try:
        size = path.stat().st_size
        if path.is_dir():
            raise UserError(f"{path} is a folder, not a file")
        if size > LARGEST_FILE_BYTES:
            limit = LARGEST_FILE_BYTES >> 20
            raise UserError(f"{path} has {size / 2**30:.1f} GiB; files up to {limit} MiB are read")
        text = path.read_bytes()
    except OSError as error:
        raise UserError(f"can't read {path}: {error.strerror}") from error
    if not text.strip():
        raise UserError(f"{path} is empty")
    try:
        return json.loads(text)
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not text in UTF-8: it is no JSON") from error
    except json.JSONDecodeError as error:
        cut = " (cut off?)" if error.pos >= len(error.doc.rstrip()) - 1 else ""
        raise UserError(
            f"{path} is no JSON{cut}: {error.msg}, line {error.lineno} column {error.colno}"
        ) from error
    except RecursionError as error:
        raise UserError(f"{path} is nested too deeply to be a saved run") from error


def pytest_benchmark_run(data: Mapping[str, Any], label: str) -> SavedRun:
    """A saved run of pytest-benchmark. Raises UserError if its structure is not that of one."""
    try:
        machine = data.get("machine_info") or {}
        benches = [_pytest_bench(one, machine) for one in data["benchmarks"]]
        commit = (data.get("commit_info") or {}).get("id") or ""
    except (TypeError, AttributeError, KeyError) as error:
        raise UserError(f"{label} looks like pytest-benchmark's, but is damaged: {error}") from error
    return collect(label, "pytest-benchmark", benches, time=str(data.get("datetime", "")), commit=commit)


def _pytest_bench(one: Mapping[str, Any], machine: Mapping[str, Any]) -> SavedBench:
    name = str(one["fullname"])
    info = one.get("extra_info") or {}
    if "case" in info and "samples_s" in info:
        return own_bench(name, info)
    stats = one.get("stats") or {}
    cpu = machine.get("cpu") or {}
    key = {"device": cpu.get("brand_raw", "unknown"), "python": machine.get("python_version", "unknown")}
    samples = stats.get("data") or info.get("samples_s")
    if not samples:
        summary = stats.get("median")
        problem = "a summary without samples: no interval can be computed (save with --benchmark-save-data)"
        usable = isinstance(summary, int | float) and not bad_samples([[float(summary)]])
        return SavedBench(name, key=key, problem=problem, summary_s=float(summary or 0) if usable else None)
    return plain_bench(name, [samples], key)


def own_bench(name: str, info: Mapping[str, Any]) -> SavedBench:
    """A bench as this project saves it: samples and canaries by process, in ``extra_info``.

    Records of one process, and those older than the gate, hold no canaries.
    """
    key = {**info.get("environment", {}), "cache": info.get("cache", ""), "tool": "flashperf"}
    parts = info.get("processes")
    if not parts:
        return plain_bench(name, [info["samples_s"]], key)
    key |= {"canary": f"{parts['canary']}, version {parts['canary_version']}"}
    samples, start = [], 0
    for count in parts["samples"]:
        samples.append(tuple(map(float, info["samples_s"][start : start + count])))
        start += count
    canary_s = tuple(tuple(map(float, one)) for one in parts["canary_s"])
    problem = bad_samples(samples) or bad_samples(canary_s)
    if not problem and (start != len(info["samples_s"]) or len(canary_s) != len(samples)):
        problem = "its samples don't fit its processes: the file is damaged"
    if problem:
        return SavedBench(name, problem=problem, key=key)
    return SavedBench(name, tuple(samples), canary_s, parts["canary"], key)
