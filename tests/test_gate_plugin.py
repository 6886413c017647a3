"""The gate at the end of ``pytest --benchmark-compare``: verdicts, exit codes, markers, and saved records."""

from __future__ import annotations

import importlib.metadata
import json
import os
from pathlib import Path
from typing import Any

import pytest

from flashperf.benching.gating import GateState, finish
from flashperf.benching.options import PROCESSES
from flashperf.benching.pool import affordable

pytest_plugins = ["pytester"]

_INSTALLED = any(
    e.value == "flashperf.pytest_plugin" for e in importlib.metadata.entry_points(group="pytest11")
)
PLUGIN = [] if _INSTALLED else ["-p", "flashperf.pytest_plugin"]
TESTS = Path(__file__).parent

BENCH = """
import mutants
from flashperf.pytest_plugin import bench_cases

test_toy = bench_cases(mutants.mechanism())
"""


@pytest.fixture
def bench(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs pytest on ``bench/bench_toy.py`` of an empty folder, in a process of its own as users do."""
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    root = str(TESTS.parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([root, str(TESTS), os.environ.get("PYTHONPATH", "")]))

    def run(*arguments: str, text: str = BENCH, processes: int = 1) -> pytest.RunResult:
        folder = pytester.path / "bench"
        folder.mkdir(exist_ok=True)
        (folder / "bench_toy.py").write_text(text)
        options = [*PLUGIN, "-p", "no:hypothesispytest", "bench/bench_toy.py"]
        options.append(f"--flashperf-budget={0.4 if processes == 1 else 12}")
        return pytester.runpytest_subprocess(
            *options, f"--flashperf-processes={processes}", *arguments, timeout=300
        )

    return run


def saved(pytester: pytest.Pytester) -> Path:
    (path,) = (pytester.path / ".benchmarks").rglob("*.json")
    return path


def rescaled(pytester: pytest.Pytester, factor: float) -> None:
    """Change the saved run: its bench took ``factor`` as long, its canaries and spreads as they were, small."""
    path = saved(pytester)
    data = json.loads(path.read_text())
    for one in data["benchmarks"]:
        info = one["extra_info"]
        centre = sorted(info["samples_s"])[len(info["samples_s"]) // 4]
        info["samples_s"] = [centre * factor for _ in info["samples_s"]]
        parts = info["processes"]
        low = min(s for process in parts["canary_s"] for s in process)
        parts["canary_s"] = [[low] * len(process) for process in parts["canary_s"]]
    path.write_text(json.dumps(data))


@pytest.mark.slow
def test_benches_run_in_processes_and_are_judged_against_the_saved_run(
    bench: Any, pytester: pytest.Pytester
) -> None:
    first = bench("--benchmark-autosave", processes=6)
    first.assert_outcomes(passed=1)
    first.stdout.fnmatch_lines(["*with the interval over 6 processes*"])
    (one,) = json.loads(saved(pytester).read_text())["benchmarks"]
    info = one["extra_info"]
    assert info["ratio_to_standard"]["interval_over"] == "processes"
    parts = info["processes"]
    assert len(parts["samples"]) == len(parts["canary_s"]) == 6
    assert sum(parts["samples"]) == len(info["samples_s"]) == one["stats"]["rounds"]
    assert parts["canary_version"].startswith("1 ")
    rescaled(pytester, 0.1)
    slower = bench("--benchmark-compare", "--flashperf-gate=50%", "--flashperf-markdown=out.md", processes=6)
    slower.stdout.fnmatch_lines(
        ["*flashperf: gate*", "this run against saved *", "slower than 50 %*toy/right/cpu/f32/m=24-n=20*"]
    )
    assert slower.ret == 10
    assert "slower than 50 %" in (pytester.path / "out.md").read_text()
    text = BENCH + "import pytest\ntest_toy = pytest.mark.flashperf_gate('900000%')(test_toy)\n"
    rejected = bench("--benchmark-compare", text=text)
    rejected.stdout.fnmatch_lines(["not judged: a threshold is a percentage*"])
    assert rejected.ret == 4
    warned = bench("--benchmark-compare", "--flashperf-fail-on=none", processes=6)
    warned.stdout.fnmatch_lines(["slower than 5 %*"])
    assert warned.ret == 0


def test_a_bench_that_is_gone_fails_and_one_that_is_left_out_does_not(
    bench: Any, pytester: pytest.Pytester
) -> None:
    bench("--benchmark-autosave").assert_outcomes(passed=1)
    data = json.loads(saved(pytester).read_text())
    assert "processes" not in data["benchmarks"][0]["extra_info"]  # one process: nothing to judge by
    other = json.loads(json.dumps(data["benchmarks"][0]))
    other["fullname"] = "bench/bench_toy.py::test_gone[x]"
    parts = {"samples": [2] * 6, "canary": "compute/l1", "canary_version": "1 x", "canary_s": [[1e-5]] * 6}
    other["extra_info"] |= {"samples_s": [1e-3] * 12, "processes": parts}
    data["benchmarks"].append(other)
    saved(pytester).write_text(json.dumps(data))
    result = bench("--benchmark-compare")
    result.stdout.fnmatch_lines(["missing*x*", "*in the baseline, did not run*"])
    result.stdout.fnmatch_lines(["can't tell*toy/right/*", "*1 process, at least 6 are needed*"])
    assert result.ret == 12
    assert bench("--benchmark-compare", "--flashperf-fail-on=slower").ret == 0
    assert bench("--benchmark-compare", "--flashperf-fail-on=slowr").ret == 4


def test_without_compare_there_is_no_gate_and_stock_flags_work(bench: Any) -> None:
    result = bench("--benchmark-autosave")
    result.stdout.no_fnmatch_line("*flashperf: gate*")
    assert result.ret == 0
    stock = bench("--benchmark-compare", "--benchmark-compare-fail=min:900%")
    assert stock.ret == 0


def test_plain_benchmarks_of_others_get_no_verdict(bench: Any) -> None:
    plain = "def test_plain(benchmark):\n    benchmark(sum, [1, 2])\n"
    bench("--benchmark-autosave", text=plain)
    result = bench("--benchmark-compare", text=plain)
    result.stdout.no_fnmatch_line("*flashperf: gate*")
    assert result.ret == 0


@pytest.mark.slow
def test_a_wrong_kernel_and_one_that_dies_fail_alone(bench: Any, pytester: pytest.Pytester) -> None:
    text = """
import mutants, os
from flashperf.pytest_plugin import bench_cases

def dies(case, inputs, outputs):
    def call():
        os._exit(7)
    return call

test_toy = bench_cases(mutants.mechanism(scaled=mutants.MUTANTS["scaled"][0], dies=dies, zed=mutants.right))
"""
    result = bench("--benchmark-json=out.json", text=text, processes=2)
    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines(["*wrong result, not timed*", "*ended with code 7*"])
    names = [b["name"] for b in json.loads((pytester.path / "out.json").read_text())["benchmarks"]]
    assert len(names) == 2


def test_a_bench_that_is_costly_to_set_up_gets_fewer_processes_and_the_budget_stands() -> None:
    assert affordable(1.2, 0.15, 8) == 8
    assert affordable(1.2, 0.5, 8) == 6  # over its budget, for the sake of a verdict
    assert affordable(1.2, 5.0, 8) == 2
    assert affordable(1.2, 0.0, 8) == 8
    assert affordable(10.0, 0.15, 4) == 4


def test_state_without_a_baseline_judges_nothing() -> None:
    class Config:
        def getoption(self, name: str) -> Any:
            return {"--flashperf-gate": None, "--flashperf-fail-on": None}.get(name, False)

    state = GateState()
    assert finish(state, Config()) == 0
    assert list(state.sections()) == []
    assert PROCESSES >= 6
