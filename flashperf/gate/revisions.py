"""Two revisions of a repository, each built in a git worktree of its own; the user's tree is never written to.

What a build gives is cached by the content of what it was made from, so that a revision is built once.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from flashperf.errors import EXIT_FAILED, UserError
from flashperf.gate.pairs import Tree

#: Folders of a repository that no build reads; an edit there needs no new one.
_NOT_BUILT = ("bench", "tests", "docs", "results", "tools", ".git", ".github")
MOST_BUILDS = 12  # kept in the cache
_SUBJECT = "flashperf_gate_side"


def git(folder: Path, *arguments: str) -> str:
    """Standard output of git. Raises UserError with what git said."""
    done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["git failed"]
        raise UserError(f"git {arguments[0]}: {said[-1].removeprefix('fatal: ')}")
    return done.stdout


def repository(folder: Path) -> Path:
    """The top of the git checkout around a folder. Raises UserError if there is none."""
    try:
        return Path(git(folder, "rev-parse", "--show-toplevel").strip())
    except UserError as error:
        raise UserError(f"revisions are compared in a git repository; {folder} is in none") from error
    except FileNotFoundError as error:
        raise UserError("git is not installed; saved files can be compared without it") from error


def commit_of(repo: Path, revision: str) -> str:
    """The commit that a name means. Raises UserError if there is none."""
    try:
        return git(
            repo, "rev-parse", "--verify", "--quiet", "--end-of-options", revision + "^{commit}"
        ).strip()
    except UserError as error:
        raise UserError(f"{revision!r} is no file here, and no revision of {repo}") from error


def cache_folder() -> Path:
    """Where builds are kept: $XDG_CACHE_HOME/flashperf/builds."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "flashperf" / "builds"


class Checkouts:
    """Temporary checkouts of one repository. A context manager: leaving it removes every trace of them."""

    def __init__(self, repo: Path) -> None:
        self.repo = repo
        self._folder = Path(tempfile.mkdtemp(prefix="flashperf-compare-"))
        self._worktrees: list[Path] = []

    def __enter__(self) -> Checkouts:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove worktrees and files; a second Ctrl-C during this is put off."""
        previous = {}
        for number in (signal.SIGINT, signal.SIGTERM):
            with suppress(ValueError):  # only the main thread may
                previous[number] = signal.signal(number, signal.SIG_IGN)
        try:
            for path in self._worktrees:
                with suppress(UserError):
                    git(self.repo, "worktree", "remove", "--force", str(path))
            shutil.rmtree(self._folder, ignore_errors=True)
            with suppress(UserError):
                git(self.repo, "worktree", "prune")
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def revision(self, name: str) -> Path:
        """A worktree of a revision."""
        commit = commit_of(self.repo, name)
        path = self._folder / f"{len(self._worktrees)}-{commit[:12]}"
        self._worktrees.append(path)
        git(self.repo, "worktree", "add", "--quiet", "--detach", str(path), commit)
        return path

    def working_tree(self) -> Path:
        """A copy of the working tree as it is: tracked files and those that git doesn't ignore."""
        path = self._folder / "working-tree"
        names = git(self.repo, "ls-files", "--cached", "--others", "--exclude-standard", "-z").split("\0")
        for name in filter(None, names):
            source, target = self.repo / name, path / name
            if source.is_file() or source.is_symlink():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target, follow_symlinks=False)
        path.mkdir(exist_ok=True)
        return path

    def harness(self) -> Path:
        """A folder with this revision's worker subject, under a name that no other tree has."""
        path = self._folder / "harness"
        path.mkdir(exist_ok=True)
        shutil.copy2(Path(__file__).with_name("side.py"), path / f"{_SUBJECT}.py")
        return path


def content_key(tree: Path) -> str:
    """A hash of all that a build reads: files outside _NOT_BUILT, the interpreter, the compiler, the platform."""
    key = hashlib.sha256(f"{sys.version} {os.environ.get('CXX', '')}".encode())
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++") or ""
    if compiler:
        key.update(subprocess.run([compiler, "--version"], capture_output=True).stdout)
    key.update(Path("/proc/cpuinfo").read_bytes().partition(b"\n\n")[0].partition(b"flags")[2][:4096])
    for path in sorted(tree.rglob("*")):
        parts = path.relative_to(tree).parts
        if parts[0] in _NOT_BUILT or "__pycache__" in parts or parts[0] == "build" or not path.is_file():
            continue
        key.update("/".join(parts).encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return key.hexdigest()[:24]


def build(tree: Path, objects: Path) -> Path | None:
    """Build a tree that has a setup.py into the cache, once per content; None if there is nothing to build.

    ``objects``: a build folder whose object files, named by their content, are reused. Raises UserError with
    the compiler's words if it fails.
    """
    if not (tree / "setup.py").is_file():
        return None
    target = cache_folder() / content_key(tree)
    if target.is_dir():
        os.utime(target)
        return target
    if (objects / "cpu").is_dir() and not (tree / "build").exists():
        shutil.copytree(objects / "cpu", tree / "build" / "cpu")
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=".building-", dir=target.parent))
    try:
        _run_build(tree, partial)
        with suppress(OSError):  # another run may have been faster
            partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    _prune(target.parent)
    return target


def _run_build(tree: Path, target: Path) -> None:
    temporary = tree / "build" / "gate"
    command = [
        sys.executable,
        "setup.py",
        "-q",
        "build",
        "--build-base",
        str(temporary),
        "--build-lib",
        str(target),
    ]
    process = subprocess.Popen(
        command,
        cwd=tree,
        env={**os.environ, "FLASHPERF_LEVELS": "native"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output = process.communicate()[0]
    except BaseException:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # the compilers that it started too
        process.wait()
        raise
    if process.returncode:
        errors = [line for line in output.splitlines() if "error" in line.lower()] or output.splitlines()
        raise UserError(f"{tree.name} does not build: {errors[0] if errors else command}", EXIT_FAILED)


def _prune(folder: Path) -> None:
    builds = sorted(
        (p for p in folder.iterdir() if not p.name.startswith(".")), key=lambda p: p.stat().st_mtime
    )
    for old in builds[:-MOST_BUILDS]:
        shutil.rmtree(old, ignore_errors=True)


def tree_of(
    label: str, checkout: Path, built: Path | None, harness: Path, folder: str, select: str = ""
) -> Tree:
    """The side of a pair that runs a checkout: its build first on the path, nothing of the user's tree."""
    files = _bench_files(checkout, folder, label)
    roots = [built] if built is not None else [checkout / "src", checkout]
    path = [str(root) for root in (*roots, harness) if root.is_dir()]
    own = built if built is not None and (built / "flashperf").is_dir() else None
    return Tree(
        label,
        {
            "collect": files,
            "root": str(checkout),
            "select": select,
            "expected": str(own) if own is not None else "",
        },
        {"PYTHONPATH": os.pathsep.join(path), "PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        f"{_SUBJECT}:Side",
    )


def _bench_files(checkout: Path, folder: str, label: str) -> Sequence[str]:
    where = checkout / folder
    if not where.exists():
        raise UserError(f"{label} has no {folder} to bench; name another with --folder")
    return [str(where)]
