"""The command line: every mistake is one line and the right exit code; the small commands; quick help."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_stub import Install, stub

import flashperf
from flashperf import cli
from flashperf.errors import UserError

__all__ = ["stub"]  # the fixture


def fail(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def measure(**named: Any) -> Any:
        raise error

    monkeypatch.setattr("flashperf.explain.explain_pipeline", measure)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nonsense"], "No such command 'nonsense'. See flashperf --help."),
        (["explain", "--bogus"], "No such option: --bogus"),
        (["explain", "--budget", "soon"], "Invalid value for '--budget'"),
        (["explain", "--seed"], "--seed"),
        (["explain", "m:f"], "--standard of a factory is switch=level,..., such as"),
        (["explain", "m:f", "--standard", "a=1", "--flash", "a"], "not 'a'"),
        (["explain", "m:f", "--standard", "a=1,a=2", "--flash", "a=1"], "--standard gives a twice"),
        (["explain", "m:f", "--scenario", "batch"], "leave out --scenario"),
        (["explain", "--replay", "x", "--flash", "a"], "leave out --flash"),
        (["explain", "m:f", "--replay", "x"], "leave out MODULE:FACTORY"),
        (["bench", "--folder", "nowhere"], "there is no folder nowhere"),
        (["bench", "--backend", ""], "--backend, --dtype, --size and --record need a mechanism"),
        (["bench", "launch", "--backend", ""], "--backend names backends, such as cpu,cuda,triton, not ''"),
        (["bench", "launch", "--size", ""], "a size is written as in a case's name"),
        (["bench", "launch", "--budget", "0"], "the budget must be a positive number of seconds, not 0"),
        (["crossover", "fusion", "--size", "rows=7"], "rows is what is varied"),
        (["crossover", "attention", "--size", "keys=7"], "keys is what is varied"),
    ],
)
def test_bad_arguments_are_one_line_and_exit_code_2(
    stub: Install, capsys: Any, arguments: list[str], said: str
) -> None:
    stub("paradox")
    assert cli.main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err
    assert printed.err.startswith("flashperf: ")
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["explain", "--scenario", "sngle"], "did you mean single?"),
        (["explain", "--flash", "tilin=naive"], "did you mean tiling?"),
        (["explain", "--flash", "tiling=nave"], "did you mean naive?"),
        (["explain", "--flash", ""], "no Flash variant is named: a, b, or switch=level,..."),
        (["explain", "--backend", "cdua"], "did you mean cuda or cpu?"),
        (["explain", "--budget", "-1"], "budget"),
        (["explain", "--replay", "missing.jsonl"], "can't read missing.jsonl"),
    ],
)
def test_unknown_names_get_the_nearest(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(arguments) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (UserError("no such thing\nat all"), 2, "flashperf: no such thing at all\n"),
        (UserError("broken", 1), 1, "flashperf: broken\n"),
        (ValueError("not a case id: 'x'"), 2, "flashperf: not a case id: 'x'\n"),
        (KeyboardInterrupt(), 130, "flashperf: interrupted\n"),
        (
            RuntimeError("worker 3 died"),
            1,
            "flashperf: RuntimeError: worker 3 died (FLASHPERF_DEBUG=1 shows where)\n",
        ),
    ],
)
def test_every_error_is_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any, error: BaseException, code: int, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FLASHPERF_DEBUG", raising=False)
    fail(monkeypatch, error)
    assert cli.main(["explain"]) == code
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", said)


def test_debug_prints_the_traceback(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLASHPERF_DEBUG", "1")
    fail(monkeypatch, RuntimeError("worker 3 died"))
    assert cli.main(["explain"]) == 1
    printed = capsys.readouterr().err
    assert "Traceback (most recent call last)" in printed
    assert printed.endswith("flashperf: RuntimeError: worker 3 died\n")


@pytest.mark.parametrize(
    "arguments", [["--help"], ["explain", "--help"], ["selfcheck", "attribution", "--help"]]
)
def test_help_is_quick_no_heavy_module_is_loaded(arguments: list[str]) -> None:
    heavy = ("numpy", "scipy", "torch", "matplotlib", "jinja2", "pytest", "flashperf.records")
    code = (
        "import sys; from flashperf.cli import main; code = main(sys.argv[1:]);"
        f"print([name for name in {heavy!r} if name in sys.modules], code, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
    )
    assert done.stderr == "[] 0\n"
    assert "Usage: flashperf" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_every_command_is_listed_with_a_summary_that_fits(capsys: Any) -> None:
    assert cli.main(["--help"]) == 0
    printed = capsys.readouterr().out
    for name in ("explain", "bench", "selfcheck", "mechanisms", "env", "version"):
        assert f"\n  {name} " in printed
    assert "..." not in printed.partition("Commands:")[2]


def test_without_a_command_the_help_is_printed(capsys: Any) -> None:
    assert cli.main([]) == 2
    printed = capsys.readouterr()
    assert "Commands:" in printed.out + printed.err


def test_version(capsys: Any) -> None:
    assert cli.main(["version"]) == 0
    assert capsys.readouterr().out == f"flashperf {flashperf.__version__}\n"


def test_env_shows_the_machine_and_the_backends(capsys: Any) -> None:
    assert cli.main(["env"]) == 0
    printed = capsys.readouterr().out
    assert "backend cpu" in printed
    assert "machine" in printed
    assert cli.main(["env", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["backends"]["cpu"] == ""


def test_mechanisms_are_listed(capsys: Any) -> None:
    assert cli.main(["mechanisms", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert cli.main(["mechanisms"]) == 0
    printed = capsys.readouterr().out
    for row in listed:
        assert f"{row['name']}: {row['variants'][0]}" in printed


def test_bench_is_pytest_on_the_bench_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bench").mkdir()
    seen: list[list[str]] = []

    def run(arguments: list[str]) -> int:
        seen.append(arguments)
        return 5

    monkeypatch.setattr("pytest.main", run)
    assert cli.main(["bench", "-k", "tiling", "--budget", "30", "--benchmark-autosave"]) == 2
    assert seen == [["bench", "-k", "tiling", "--flashperf-budget=30", "--benchmark-autosave"]]


@pytest.mark.parametrize(("passed", "code"), [(True, 0), (False, 1)])
def test_selfcheck_prints_its_report(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, passed: bool, code: int
) -> None:
    class Report:
        def __init__(self) -> None:
            self.passed = passed

        def lines(self) -> list[str]:
            return ["one", "two"]

    def simulated(runs: int, seed: int, progress: Any) -> Report:
        assert (runs, seed) == (7, 1)
        progress(0, 7)
        progress(7, 7)
        return Report()

    monkeypatch.setattr("flashperf.selfcheck.selfcheck_attribution", simulated)
    monkeypatch.setattr("flashperf.selfcheck.selfcheck_real", lambda seed, progress: Report())
    assert cli.main(["selfcheck", "attribution", "--runs", "7", "--seed", "1"]) == code
    assert cli.main(["selfcheck", "attribution", "--real", "-q"]) == code
    assert capsys.readouterr().out == "one\ntwo\n" * 2
