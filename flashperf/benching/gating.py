"""The gate at the end of ``pytest --benchmark-compare``: this run's benches against the saved run's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flashperf.errors import UserError
from flashperf.gate.outcome import (
    DEFAULT_FAIL_ON,
    DEFAULT_THRESHOLD,
    GateReport,
    parse_fail_on,
    parse_percent,
)
from flashperf.gate.readers import own_bench, pytest_benchmark_run
from flashperf.gate.runs import SavedBench, SavedRun, collect
from flashperf.gate.saved import RunSpread, run_spread
from flashperf.gate.text import lines, markdown
from flashperf.gate.versus import GateOptions, compare_runs

EXIT_USAGE = 4  # pytest's
MOST_STORED_RUNS = 20  # read for the spread between runs, the newest ones


@dataclass
class GateState:
    """What one pytest run gathers. baselines: the files that pytest-benchmark compares with, parsed.

    measured: extra_info by pytest id; failed: benches that raised, with the reason; unjudged: plain benchmarks
    and the end-to-end ones.
    """

    baselines: list[Mapping[str, Any]] = field(default_factory=list)
    storage: Any = None
    measured: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    not_selected: set[str] = field(default_factory=set)
    thresholds: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    problem: str = ""
    _report: GateReport | None = None

    def add(self, name: str, info: Mapping[str, Any], threshold: str) -> None:
        """A bench was measured; ``threshold``: its own D as text, or empty."""
        self.measured[name] = info
        if threshold:
            self.thresholds[name] = threshold

    def sections(self) -> Iterator[tuple[str, list[str]]]:
        """(title, lines) for the terminal."""
        if self.problem:
            yield "flashperf: gate", [self.problem]
        if self._report is not None:
            yield "flashperf: gate", list(lines(self._report))

    def judge(self, options: GateOptions) -> GateReport | None:
        """``report``, remembered for the summary."""
        self._report = self.report(options)
        return self._report

    def report(self, options: GateOptions) -> GateReport | None:
        """The verdicts, or None if there is nothing of ours on either side."""
        if not self.baselines:
            return None
        saved = pytest_benchmark_run(self.baselines[-1], "the saved run")
        mine = {
            b["fullname"] for b in self.baselines[-1]["benchmarks"] if "case" in (b.get("extra_info") or {})
        }
        ours = {name: bench for name, bench in saved.benches.items() if name in mine}
        now = self._now()
        if not ours and not now.benches:
            return None
        before = SavedRun(_label(self.baselines[-1]), saved.tool, ours, saved.time, saved.commit)
        return compare_runs(before, now, options, _Spreads(self._stored()), tuple(self.not_selected))

    def _now(self) -> SavedRun:
        benches = [own_bench(name, info) for name, info in self.measured.items() if name not in self.failed]
        benches += [SavedBench(name, problem=why, failed=True) for name, why in self.failed.items()]
        return collect("this run", "flashperf", benches)

    def _stored(self) -> list[SavedRun]:
        """The newest saved runs in the storage; a damaged one is left out."""
        runs = []
        try:
            loaded = list(self.storage.load())[-MOST_STORED_RUNS:] if self.storage is not None else []
        except Exception:
            return []
        for path, data in loaded:
            try:
                runs.append(pytest_benchmark_run(data, str(path)))
            except UserError:
                continue
        return runs


def _label(data: Mapping[str, Any]) -> str:
    commit = (data.get("commit_info") or {}).get("id") or ""
    when = str(data.get("datetime", ""))[:16].replace("T", " ")
    return f"saved {when}" + (f" at {commit[:10]}" if len(commit) >= 40 else "")


def finish(state: GateState, config: Any) -> int:
    """Judge at the end of a pytest run, write the markdown, and return the exit code; a mistake in an option is 4."""
    try:
        given = config.getoption("--flashperf-gate")
        options = GateOptions(
            parse_percent(given) if given is not None else DEFAULT_THRESHOLD,
            {name: parse_percent(text) for name, text in state.thresholds.items()},
            config.getoption("--flashperf-strict"),
            config.getoption("--flashperf-moderated"),
        )
        fail_on = parse_fail_on(config.getoption("--flashperf-fail-on") or DEFAULT_FAIL_ON)
        report = state.judge(options)
        target = config.getoption("--flashperf-markdown")
        if report is not None and target:
            Path(target).write_text(markdown(report), encoding="utf-8")
    except UserError as error:
        state.problem = f"not judged: {error}"
        return EXIT_USAGE
    except OSError as error:
        state.problem = f"can't write {error.filename}: {error.strerror}"
        return EXIT_USAGE
    return report.exit_code(fail_on) if report is not None else 0


class _Spreads:
    """What the stored runs say of a bench, of those runs that may be compared with it."""

    def __init__(self, runs: Sequence[SavedRun]) -> None:
        self._runs = runs

    def __call__(self, bench: SavedBench) -> RunSpread | None:
        same = (run.benches.get(bench.name) for run in self._runs)
        return run_spread([one.times() for one in same if one and one.samples_s and one.key == bench.key])
