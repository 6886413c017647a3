"""The list of stages: what each runs on a GPU, and what in its place where there is none."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from flashperf.gpu_run.machine import Machine

#: Emulated contract tests: one mechanism of each kind, quick to build.
_EMULATED_TESTS = "tiling or launch"
#: Its weights are read in a tenth of a millisecond; a larger one would not be through all mixtures in time.
MODEL = "shape:110m"
_BENCH_SHARE = 0.8  # of the stage's limit that the benches may plan with: the rest is collecting and checking


@dataclass(frozen=True)
class Stage:
    """A step of the run.

    weight:  share of the time that is left when it begins, against the weights of the stages to come
    needs:   modules without which it can't run; it is then skipped, with their names
    command: (machine, folder, limit in seconds) -> arguments of a process
    times:   it does nothing but measure times, so there is nothing in it to emulate
    """

    name: str
    what: str
    weight: float
    needs: tuple[str, ...]
    command: Callable[[Machine, Path, float], list[str]]
    times: bool = False


def _module(name: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", name, *arguments]


def _pytest(*arguments: str) -> list[str]:
    """pytest with the project's plugin, which an uninstalled checkout has to name."""
    found = {entry.name for entry in importlib.metadata.entry_points(group="pytest11")}
    plugin = [] if "flashperf" in found else ["-p", "flashperf.pytest_plugin"]
    return _module("pytest", *plugin, "-p", "no:cacheprovider", *arguments)


def _build(machine: Machine, folder: Path, limit_s: float) -> list[str]:
    return _module("flashperf.gpu_run.build", "--architecture", machine.architecture or "none")


def _contract(machine: Machine, folder: Path, limit_s: float) -> list[str]:
    common = ("-q", "-rs", f"--junitxml={folder / 'contract.xml'}")
    if not machine.gpu:
        return _pytest("tests/test_cuda_contract.py", "-k", _EMULATED_TESTS, *common)
    files = ("test_cuda_contract.py", "test_triton_contract.py", "test_contract.py")
    return _pytest(*(f"tests/{file}" for file in files), "-k", "cuda or triton", *common)


def _compare(machine: Machine, folder: Path, limit_s: float) -> list[str]:
    size = "tiny" if not machine.gpu else "full"
    arguments = ("--size", size, "--budget", f"{_BENCH_SHARE * limit_s:.0f}", "--out", str(folder))
    return _module("flashperf.gpu_run.comparisons", *arguments)


def _bench(machine: Machine, folder: Path, limit_s: float) -> list[str]:
    output = (f"--benchmark-json={folder / 'bench.json'}", f"--flashperf-budget={_BENCH_SHARE * limit_s:.0f}")
    if not machine.gpu:
        return _pytest("bench/bench_tiling.py", "-k", "cuda", "-q", "-rs", "--benchmark-disable")
    return _pytest("bench/", "-k", "cuda or triton", "-q", "-rs", *output)


def _roofs(machine: Machine, folder: Path, limit_s: float) -> list[str]:
    arguments = (
        "--backend",
        "cuda",
        "--budget",
        f"{0.8 * limit_s:.0f}",
        "--out",
        str(folder / "roofs.jsonl"),
    )
    return _module("flashperf.cli", "roofs", *arguments, "--quiet")


def _pipeline(machine: Machine, folder: Path, limit_s: float) -> list[str]:
    model = MODEL if machine.gpu else "shape:tiny"
    backends = "cuda,triton" if machine.gpu and "triton" in machine.versions else "cuda"
    out = str(folder / "pipeline.json")
    return _module("flashperf.gpu_run.pipeline", "--model", model, "--backends", backends, "--out", out)


def _explain(machine: Machine, folder: Path, limit_s: float) -> list[str]:
    arguments = ("--backend", "cuda", "--model", MODEL, "--quiet", "--out", str(folder / "explain"))
    return _module("flashperf.cli", "explain", *arguments, "--budget", f"{0.9 * limit_s:.0f}")


STAGES: tuple[Stage, ...] = (
    Stage("build", "kernels for this machine", 40, (), _build),
    Stage("contract", "every CUDA and Triton case against float64", 100, ("pytest",), _contract),
    Stage("compare", "our kernels beside torch and a device copy", 50, (), _compare),
    Stage("bench", "isolated benches", 70, ("pytest", "pytest_benchmark"), _bench),
    Stage("roofs", "what this GPU can do at best", 40, (), _roofs, times=True),
    Stage("pipeline", "every switch of the pipeline against float64", 40, (), _pipeline),
    Stage("explain", "Standard against Flash on this GPU", 140, (), _explain, times=True),
)
