"""Two revisions of a real, tiny git repository: verdicts, builds, and that nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from gate_repository import children, repository, state, write_module

from flashperf.cli import main
from flashperf.errors import UserError
from flashperf.gate import revisions
from flashperf.gate.revisions import Checkouts, build, commit_of, content_key
from flashperf.gate.sampling import CHUNK_S, plan_samples

QUICK = ["--processes", "6", "--budget", "0.3", "-q"]


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return repository(tmp_path_factory.mktemp("gate") / "repo")


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)


def leftovers(tmp_path: Path) -> list[str]:
    return [p.name for p in tmp_path.iterdir() if p.name.startswith("flashperf-compare")]


@pytest.mark.slow
def test_twice_the_work_is_slower_and_nothing_is_left(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(repo)
    before, processes = state(repo), children()
    assert main(["compare", "once", "twice", *QUICK]) == 10
    out = capsys.readouterr().out
    assert out.startswith("twice against once")
    assert "slower than 5 %  toy/once/cpu/f32/n=40000" in out
    assert state(repo) == before
    assert children() == processes
    assert leftovers(tmp_path) == []


@pytest.mark.slow
def test_the_working_tree_is_compared_as_it_is(
    repo: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(repo / "bench")
    write_module(repo, 6)
    before = state(repo)
    try:
        assert main(["compare", "twice", "--gate", "50%", *QUICK]) == 10
    finally:
        write_module(repo, 2)
    assert "the working tree against twice" in capsys.readouterr().out
    assert "mine.py" in before[0]


@pytest.mark.slow
def test_a_bench_that_raises_on_one_side_only_is_named(
    repo: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(repo)
    assert main(["compare", "once", "broken", *QUICK]) == 14
    assert "now: ValueError: no such kernel" in capsys.readouterr().out
    assert main(["compare", "broken", "once", *QUICK]) == 0
    assert "before: ValueError: no such kernel" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_no_worktree_and_no_process(repo: Path, tmp_path: Path, number: int) -> None:
    before, others = state(repo), children()
    command = [sys.executable, "-m", "flashperf.cli", "compare", "once", "twice", "--budget", "60"]
    environment = {**os.environ, "TMPDIR": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    root = str(Path(revisions.__file__).parents[2])
    environment["PYTHONPATH"] = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(command, cwd=repo, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        for line in process.stderr:  # until pairs are measuring
            if "benches" in line:
                break
        workers = children() - others
        process.send_signal(number)
        assert process.wait(timeout=60) == 130
    finally:
        process.kill()
    deadline = time.monotonic() + 20
    while children() & workers and time.monotonic() < deadline:
        os.sched_yield()
    assert not children() & workers
    assert state(repo) == before
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["no-such-revision"], "'no-such-revision' is no file here, and no revision of"),
        (["once", "no-such"], "'no-such' is no file here"),
        (["--", "-x"], "'-x' is no file here"),
        (["once", "twice", "--folder", "nowhere"], "once has no nowhere to bench"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(
    repo: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    says: str,
) -> None:
    monkeypatch.chdir(repo)
    before = state(repo)
    assert main(["compare", *QUICK, *arguments]) == 2
    err = capsys.readouterr().err
    assert says in err
    assert err.count("\n") == 1
    assert state(repo) == before
    assert leftovers(tmp_path) == []


def test_outside_of_a_repository_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert main(["compare", "main"]) == 2
    assert "in a git repository" in capsys.readouterr().err


SETUP = """
import pathlib, sys
out = pathlib.Path(sys.argv[sys.argv.index("--build-lib") + 1])
if "fail" in pathlib.Path("mine.py").read_text():
    sys.exit("mine.cpp:3: error: expected ';'")
(out / "mine").mkdir(parents=True)
(out / "mine" / "built.txt").write_text(pathlib.Path("mine.py").read_text())
"""


def test_builds_are_cached_by_content_and_failures_say_why(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "bench").mkdir(parents=True)
    (tree / "mine.py").write_text("one")
    assert build(tree, tree / "build") is None  # nothing to build
    (tree / "setup.py").write_text(SETUP)
    first = build(tree, tree / "build")
    assert first is not None
    assert (first / "mine" / "built.txt").read_text() == "one"
    (tree / "bench" / "bench_x.py").write_text("not part of a build")
    assert build(tree, tree / "build") == first
    (tree / "mine.py").write_text("two")
    second = build(tree, tree / "build")
    assert second is not None
    assert second != first
    assert (second / "mine" / "built.txt").read_text() == "two"
    (tree / "mine.py").write_text("fail")
    key = content_key(tree)
    with pytest.raises(UserError, match=r"tree does not build: mine.cpp:3: error: expected ';'"):
        build(tree, tree / "build")
    assert not (first.parent / key).exists()
    assert not list(first.parent.glob(".building*"))


def test_a_worktree_is_gone_even_after_an_error(repo: Path, tmp_path: Path) -> None:
    before = state(repo)

    def interrupted() -> None:
        with Checkouts(repo) as checkouts:
            place = checkouts.revision("once")
            assert (place / "mine.py").read_text() == "TIMES = 1\nBROKEN = False\n"
            assert (checkouts.working_tree() / "untracked.txt").read_text() == "mine\n"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert state(repo) == before
    assert leftovers(tmp_path) == []
    assert len(commit_of(repo, "once")) == 40


def test_samples_fill_a_budget_and_long_calls_get_fewer_blocks() -> None:
    short = plan_samples(10e-6, 0.25)
    assert short.calls == pytest.approx(CHUNK_S / 10e-6)
    assert short.blocks == 6
    assert 8 * short.blocks * (short.calls * short.chunks * 10e-6) < 0.25
    long = plan_samples(5e-3, 0.25)
    assert (long.calls, long.chunks, long.blocks) == (1, 1, 3)
    assert plan_samples(10.0, 0.25).blocks == 1
    with pytest.raises(ValueError, match="stood still"):
        plan_samples(0.0, 0.25)
