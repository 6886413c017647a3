"""The pytest layer, run in pytester sessions: pytest-benchmark's own options behave as its users expect."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mutants
import pytest

# Sessions run in this process: what they import must be here before them, or they load it a second time.
import flashperf.explain
import flashperf.report  # noqa: F401
from flashperf.benching import summary
from flashperf.benching.replay import ReplayTimer
from flashperf.benching.rows import Row
from flashperf.benching.session import BenchSession, Budget
from flashperf.benching.summary import summary_lines
from flashperf.records import Check, Cost, Measurement
from flashperf.stats import ratio_interval

pytest_plugins = ["pytester"]

#: Installed, the plugin is loaded as an entry point; from a bare checkout it has to be named.
_INSTALLED = any(
    e.value == "flashperf.pytest_plugin" for e in importlib.metadata.entry_points(group="pytest11")
)
PLUGIN = [] if _INSTALLED else ["-p", "flashperf.pytest_plugin"]
TESTS = Path(__file__).parent

BENCH = """
import mutants
from flashperf.pytest_plugin import bench_cases

def twice(case, inputs, outputs):
    call = mutants.right(case, inputs, outputs)
    def run():
        call()
        call()
    return run

test_toy = bench_cases(mutants.mechanism(twice=twice))
"""

#: What the documentation shows: a mechanism of one's own, and one line to bench it.
DOCUMENTED = TESTS.parent / "docs" / "examples" / "bench_row_order.py"


@pytest.fixture
def bench(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs pytest on ``bench/bench_toy.py`` of an empty folder, in this process: a new one takes seconds."""
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)

    def run(*arguments: str, text: str = BENCH, budget: str = "0.4") -> pytest.RunResult:
        folder = pytester.path / "bench"
        folder.mkdir(exist_ok=True)
        (folder / "bench_toy.py").write_text(text)
        options = [
            *PLUGIN,
            "-p",
            "no:hypothesispytest",
            "bench/bench_toy.py",
            f"--flashperf-budget={budget}",
            "--flashperf-processes=1",  # several are for the tests of the gate: they take seconds to start
            *arguments,
        ]
        return pytester.runpytest_inprocess(*options)

    return run


def test_every_variant_is_benched_and_recorded(bench: Any, pytester: pytest.Pytester) -> None:
    result = bench("--benchmark-json=out.json")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(
        [
            "*benchmark 'toy cpu f32 m=24-n=20': 2 tests*",
            "*flashperf: variants against their standard*",
            "toy cpu f32 m=24-n=20",
            "  right * itself *error*",
            "  twice *FLOP/s*error*",
        ]
    )
    data = json.loads((pytester.path / "out.json").read_text())["benchmarks"]
    assert [b["name"] for b in data] == [
        "test_toy[toy/right/cpu/f32/m=24-n=20]",
        "test_toy[toy/twice/cpu/f32/m=24-n=20]",
    ]
    assert data[0]["group"] == data[1]["group"] == "toy cpu f32 m=24-n=20"
    assert data[1]["params"]["variant"] == "twice"
    twice = data[1]
    info = twice["extra_info"]
    assert twice["stats"]["data"] == pytest.approx(info["samples_s"], rel=1e-12)
    assert twice["stats"]["iterations"] == info["calls_per_sample"]
    assert twice["stats"]["rounds"] == len(info["samples_s"]) == 4 * info["ratio_to_standard"]["blocks"]
    assert info["ratio_to_standard"]["value"] > 1.2
    assert info["flops"] == 2 * 24 * 20 * 20 + 24 * 20
    assert info["gflop_per_s"] == pytest.approx(info["flops"] / twice["stats"]["median"] / 1e9)
    assert info["error"]["passed"]
    assert 0 < info["error"]["max_abs_error"] < info["error"]["limit"]
    assert (info["cache"], info["standard"]) == ("warm", "toy/right/cpu/f32/m=24-n=20")
    assert len(info["cpu_s"]) == len(info["samples_s"])
    assert info["environment"]["threads"] == 1


def test_a_wrong_variant_fails_without_a_time_and_the_rest_goes_on(
    bench: Any, pytester: pytest.Pytester
) -> None:
    text = BENCH.replace("twice=twice", "scaled=mutants.MUTANTS['scaled'][0], twice=twice")
    result = bench("--benchmark-json=out.json", text=text)
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["toy/scaled/*wrong result, not timed: *above the limit*"])
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*another exception*")
    result.stdout.no_fnmatch_line("*not used at all*")
    names = [b["name"] for b in json.loads((pytester.path / "out.json").read_text())["benchmarks"]]
    assert len(names) == 2
    assert not any("scaled" in name for name in names)


def test_a_variant_that_is_not_available_is_a_visible_skip(bench: Any) -> None:
    text = BENCH.replace(
        "test_toy = bench_cases(mutants.mechanism(twice=twice))",
        "import dataclasses\n"
        "lacks = lambda case: 'needs AVX-1024' if case.variant == 'twice' else ''\n"
        "test_toy = bench_cases(dataclasses.replace(mutants.mechanism(twice=twice), supports=lacks))",
    )
    result = bench("-rs", text=text)
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["1 case not run here: cpu: needs AVX-1024", "SKIPPED*needs AVX-1024*"])


def test_disabled_benchmarks_are_checked_only(bench: Any) -> None:
    result = bench("--benchmark-disable")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["2 cases checked, none timed"])
    result.stdout.no_fnmatch_line("*against their standard*")
    wrong = bench("--benchmark-disable", text=BENCH.replace("twice=twice", "nan=mutants.MUTANTS['nan'][0]"))
    wrong.assert_outcomes(passed=1, failed=1)


def test_saved_runs_are_compared_by_pytest_benchmark(bench: Any) -> None:
    bench("--benchmark-autosave").stderr.fnmatch_lines(["Saved benchmark data in: *"])
    result = bench("--benchmark-compare", "--benchmark-compare-fail=min:100000%")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*(NOW)*", "*(0001_*"])
    failing = bench("--benchmark-compare", "--benchmark-compare-fail=min:0.0000001")
    assert failing.ret != 0 or "Performance has regressed" not in failing.stdout.str()


def test_raw_samples_are_always_saved(bench: Any, pytester: pytest.Pytester) -> None:
    bench("--benchmark-autosave")
    (saved,) = (pytester.path / ".benchmarks").rglob("*.json")
    one = json.loads(saved.read_text())["benchmarks"][0]
    assert "data" not in one["stats"]
    assert len(one["extra_info"]["samples_s"]) == one["stats"]["rounds"]


def test_selection_gets_the_whole_budget(bench: Any) -> None:
    result = bench("-k", "twice", "--benchmark-only", budget="0.2")
    result.assert_outcomes(passed=1, deselected=1)


def test_profiles_are_of_the_kernel(bench: Any) -> None:
    result = bench("-k", "twice", "--benchmark-cprofile=ncalls", budget="0.1")
    result.stdout.fnmatch_lines(["*cProfile*", "2*mutants.py:*(_compute)"])


def test_groups_by_parameter(bench: Any) -> None:
    result = bench("--benchmark-group-by=param:variant")
    result.stdout.fnmatch_lines(
        ["*benchmark 'variant=right': 1 tests*", "*benchmark 'variant=twice': 1 tests*"]
    )


def test_skip_and_cold_caches(bench: Any) -> None:
    bench("--benchmark-skip").assert_outcomes(skipped=2)
    result = bench("--flashperf-cache=cold", "-k", "twice", budget="0.05")
    result.assert_outcomes(passed=1, deselected=1)
    result.stdout.fnmatch_lines(["caches cold*"])


def test_an_unknown_mechanism_gives_the_nearest_names(bench: Any) -> None:
    text = "from flashperf.pytest_plugin import bench_cases\ntest_x = bench_cases('tilling')\n"
    result = bench(text=text)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*unknown mechanism 'tilling'*"])
    text = BENCH.replace("(twice=twice))", "(twice=twice), backends=['cup'])")
    bench(text=text).stdout.fnmatch_lines(["*unknown backend 'cup': did you mean cpu*"])
    for budget in ("none", "0", "-1", "inf"):
        bench(budget=budget).stderr.fnmatch_lines(
            [f"*--flashperf-budget: invalid budget '{budget}': give a positive number of seconds*"]
        )


def test_the_documented_lines_work(bench: Any, pytester: pytest.Pytester) -> None:
    result = bench("--benchmark-json=out.json", text=DOCUMENTED.read_text())
    result.assert_outcomes(passed=2)
    data = json.loads((pytester.path / "out.json").read_text())["benchmarks"]
    assert [b["params"]["variant"] for b in data] == ["sorted", "shuffled"]
    assert all(b["extra_info"]["bytes"] == 20000 * (64 * 4 + 8) + 64 * 4 for b in data)


def test_a_bench_keeps_its_own_marker(bench: Any) -> None:
    text = BENCH + "import pytest\ntest_toy = pytest.mark.benchmark(group='mine')(test_toy)\n"
    bench(text=text).stdout.fnmatch_lines(["*benchmark 'mine': 2 tests*"])


def test_bench_functions_may_be_called_bench(bench: Any, pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\npython_functions = bench_*\n")
    text = BENCH.replace("test_toy =", "from flashperf.pytest_plugin import bench_end_to_end\nbench_toy =")
    bench(text=text).assert_outcomes(passed=2)  # not bench_cases and bench_end_to_end themselves


def test_one_block_has_no_interval() -> None:
    case = mutants.case("right")
    measurement = Measurement(
        case,
        Check(True, 0.0, 0.0, 0.0, (0,), 0.0),
        Cost(0, 8, 8),
        (1e-3,) * 4,
        (1e-3,) * 4,
        1e-3,
        1,
        "t",
        "warm",
    )
    session = BenchSession(Budget(1.0))
    session.rows.append(Row(measurement, case, ratio_interval([0.5]), 1))
    (_, lines), _ = summary_lines(session)
    assert "1.649 [1 block] itself" in lines[1]
    session.rows.append(Row(measurement, mutants.case(), ratio_interval([0.5, 0.5]), 2))
    (_, lines), _ = summary_lines(session)
    assert "1.649 [1.649 1.649]" in lines[-1]


def test_other_tests_pay_nothing(pytester: pytest.Pytester) -> None:
    """The plugin is loaded in every pytest run where flashperf is installed: it must import nothing."""
    pytester.makepyfile(
        """
        import sys

        def test_nothing_heavy_was_imported():
            assert "flashperf.pytest_plugin" in sys.modules
            heavy = {"numpy", "scipy", "torch", "flashperf.records", "flashperf.measure"} & set(sys.modules)
            assert not heavy, heavy
        """
    )
    result = pytester.runpytest_subprocess(*PLUGIN, "-p", "no:hypothesispytest", timeout=120)
    result.assert_outcomes(passed=1)


END_TO_END = """
import mutants
import pytest
import samples
from flashperf import explain
from flashperf.pytest_plugin import bench_end_to_end

budgets = []

@pytest.fixture(autouse=True)
def recorded(monkeypatch):
    def fake(budget_s):
        budgets.append(budget_s)
        return samples.paradox()
    monkeypatch.setattr(explain, "explain_pipeline", fake)

test_paradox = bench_end_to_end()

def test_it_was_measured_once_with_the_whole_budget():
    assert len(budgets) == 1
    assert budgets[0] == pytest.approx(20, rel=0.05)
"""


def test_the_end_to_end_bench_closes_with_the_attribution(bench: Any, pytester: pytest.Pytester) -> None:
    result = bench("--benchmark-json=out.json", text=END_TO_END, budget="20")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(
        ["*benchmark 'end to end': 2 tests*", "*flashperf: pipeline*", "*tiling*bad_tile*"]
    )
    standard, flash = json.loads((pytester.path / "out.json").read_text())["benchmarks"]
    assert (standard["name"], flash["name"]) == ("test_paradox[standard]", "test_paradox[flash]")
    assert standard["stats"]["data"] == [0.0312]
    assert flash["stats"]["data"] == [0.0661]
    assert flash["extra_info"]["levels"]["tiling"] == "bad_tile"
    assert flash["extra_info"]["attribution"]["shares"]


def test_an_end_to_end_run_that_fails_is_not_tried_twice(bench: Any) -> None:
    text = END_TO_END.replace(
        "return samples.paradox()", "from flashperf.errors import UserError; raise UserError('too noisy')"
    )
    result = bench(text=text, budget="20")
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(["too noisy", "too noisy"])
    result.stdout.no_fnmatch_line("*Traceback*")


def test_a_disabled_end_to_end_bench_is_a_visible_skip(bench: Any) -> None:
    result = bench("--benchmark-disable", "-rs", "-k", "paradox", text=END_TO_END)
    result.assert_outcomes(skipped=2, deselected=1)
    result.stdout.fnmatch_lines(["SKIPPED*benchmarks are disabled*"])


def test_replay_gives_exactly_what_was_loaded() -> None:
    timer = ReplayTimer()
    durations = [1e-9, 0.1 + 0.2, 3.0, 7e-5]
    timer.load(durations)
    got = []
    for _ in durations:
        start = timer()
        got.append(timer() - start)
    assert got == durations
    assert timer() == timer() == 0.0


def test_budget_is_shared_by_weight_and_moves_on() -> None:
    now = [0.0]
    budget = Budget(10.0, lambda: now[0])
    budget.plan({"a": 1.0, "b": 1.0, "end": 2.0})
    assert budget.take("a") == pytest.approx(2.5)
    now[0] = 1.0  # a took less than its part
    assert budget.take("b") == pytest.approx(9 / 3)
    now[0] = 5.0
    assert budget.take("end") == pytest.approx(5.0)


def test_the_end_to_end_bench_gets_its_part_however_long_the_others_took() -> None:
    now = [0.0]
    budget = Budget(12.0, lambda: now[0])
    budget.plan({"a": 1.0, "end": 1.0, "b": 1.0}, "end")
    assert budget.take("a") == pytest.approx(4)
    now[0] = 9.0  # a took far too long
    assert budget.take("end") == pytest.approx(4)
    assert 0 < budget.take("b") <= 3


def test_skipped_items_leave_their_time_to_others() -> None:
    budget = Budget(10.0, lambda: 0.0)
    budget.plan({"a": 1.0, "b": 1.0})
    budget.drop("a")
    assert budget.take("b") == pytest.approx(10.0)


def test_an_overrun_budget_still_gives_the_least() -> None:
    now = [0.0]
    budget = Budget(1.0, lambda: now[0])
    budget.plan({"a": 1.0, "b": 1.0})
    budget.take("a")
    now[0] = 50.0
    assert 0 < budget.take("b") < 1


def test_disturbed_tries_never_read_as_part_of_the_samples() -> None:
    measurement = SimpleNamespace(cache_state="warm", samples_s=[1.0] * 456, disturbed=497)
    environment = SimpleNamespace(busy=False)
    session: Any = SimpleNamespace(
        rows=[SimpleNamespace(measurement=measurement, processes=1)],
        environment=environment,
        checked=0,
        skipped={},
        notes=[],
    )
    notes = list(summary._notes(session))
    assert notes[1] == "caches warm; 456 samples counted"
    assert notes[2].startswith("disturbed by the machine: 497 tries, either run again and not among")
