"""What is installed works without the checkout: kernels for the emulator and NVRTC, and fat binaries."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

from flashperf.cuda import binaries

ROOT = Path(__file__).resolve().parent.parent

FAKE_NVCC = """#!/bin/sh
echo "$@" >> "$(dirname "$0")/asked"
while [ "$1" != -o ]; do [ -e "$(dirname "$0")/broken" ] && { echo "$1: no"; exit 1; } >&2; shift; done
echo code > "$2"
"""

EMULATE = """
import flashperf
from flashperf import registry
from flashperf.emulator_build import cache_folder, source_folder
from flashperf.problem import load_problem

print(flashperf.__file__, source_folder(), cache_folder(), sep="\\n")
tiling = registry.mechanism("tiling")
for case in registry.cases(tiling, backends=["cuda"], dtypes=["f32"], variants=["tiled_16", "pipelined"]):
    problem = load_problem(tiling, case, emulated=True)
    call, inputs, outputs = problem.bind()
    call()
    problem.check(call, inputs, outputs)
"""


@pytest.fixture
def nvcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a stand-in for nvcc, which notes what it was asked for in the file ``asked``."""
    tool = tmp_path / "tool" / "nvcc"
    tool.parent.mkdir()
    tool.write_text(FAKE_NVCC)
    tool.chmod(0o755)
    monkeypatch.setenv("NVCC", str(tool))
    return tool.parent


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kernel file with a header, and a folder for binaries of its own."""
    (tmp_path / "add.cu").write_text("// add")
    (tmp_path / "common.cuh").write_text("// common")
    monkeypatch.setattr(binaries, "folder", lambda: tmp_path / "_cuda")
    return tmp_path / "add.cu"


def test_a_fat_binary_is_built_once_and_again_when_a_header_changes(nvcc: Path, source: Path) -> None:
    def build() -> int:
        assert binaries.build(source, binaries.folder()) == ""
        return len((nvcc / "asked").read_text().splitlines())

    assert binaries.current(source) is None
    assert build() == build() == 1
    assert binaries.current(source) == binaries.folder() / "add.fatbin"
    (source.parent / "common.cuh").write_text("// other")
    assert binaries.current(source) is None, "it no longer fits: the source is compiled instead"
    assert build() == 2
    assert binaries.current(source)
    asked = (nvcc / "asked").read_text().splitlines()[0]
    for architecture, code in (("80", "sm_80"), ("90a", "sm_90a"), ("100", "sm_100"), ("80", "compute_80")):
        assert f"-gencode arch=compute_{architecture},code={code} " in asked


def test_a_binary_that_cannot_be_built_anew_is_gone(nvcc: Path, source: Path) -> None:
    assert binaries.build(source, binaries.folder()) == ""
    source.write_text("// wrong")
    (nvcc / "broken").touch()
    assert binaries.build(source, binaries.folder()) == "add.cu: -std=c++17: no"
    assert not (binaries.folder() / "add.fatbin").exists()


@pytest.mark.slow
def test_nvcc_makes_a_fat_binary_of_a_mechanism(tmp_path: Path) -> None:
    if not shutil.which("nvcc"):
        pytest.skip("nvcc is not on the PATH (pip install nvidia-cuda-nvcc, or a CUDA toolkit)")
    assert binaries.build(ROOT / "csrc" / "cuda" / "cache.cu", tmp_path) == ""
    content = (tmp_path / "cache.fatbin").read_bytes()
    assert all(name in content for name in (b"produce", b"consume"))


def test_without_being_asked_set_up_does_not_look_for_nvcc() -> None:
    """The quick set-up stays quick: FLASHPERF_CUDA is all that leads to nvcc."""
    text = (ROOT / "setup.py").read_text()
    condition = text.index('if wanted := os.environ.get("FLASHPERF_CUDA", "")')
    assert "build_cuda(" not in text[:condition]
    assert "FLASHPERF_CUDA" not in "".join(
        line for line in (ROOT / "Makefile").read_text().splitlines() if "gpu" not in line
    )


class Installed(NamedTuple):
    """Where the wheel was unpacked, and the files that it was built from (which are gone)."""

    site: Path
    sources: list[str]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel of this checkout, built from a copy that was removed, then unpacked."""
    checkout = tmp_path_factory.mktemp("checkout")
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True
    )
    if listed.returncode:
        pytest.skip("not a git checkout: which files belong to it isn't known")
    unneeded = ("results/", "docs/", "tests/")
    names = [n for n in listed.stdout.splitlines() if (ROOT / n).is_file() and not n.startswith(unneeded)]
    for name in names:
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, checkout / name)
    (checkout / "build").mkdir()
    if (ROOT / "build" / "cpu").is_dir():  # objects are kept by content: nothing is compiled twice
        (checkout / "build" / "cpu").symlink_to(ROOT / "build" / "cpu")
    folder = tmp_path_factory.mktemp("wheel")
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(folder),
        ".",
    ]
    environment = {**os.environ, "FLASHPERF_LEVELS": "native", "FLASHPERF_CUDA": ""}
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    shutil.rmtree(checkout)
    site = tmp_path_factory.mktemp("site")
    (wheel,) = folder.glob("flashperf-*.whl")
    zipfile.ZipFile(wheel).extractall(site)
    return Installed(site, names)


def run(site: Path, home: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(site), "XDG_CACHE_HOME": str(home)}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=home, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_wheel_runs_its_cuda_kernels_on_the_emulator(installed: Installed, tmp_path: Path) -> None:
    package, sources, cache = run(installed.site, tmp_path, "-c", EMULATE).splitlines()
    assert Path(package).parent == installed.site / "flashperf"
    assert Path(sources) == installed.site / "flashperf" / "csrc"
    assert Path(cache) == tmp_path / "flashperf" / "emulator"


@pytest.mark.slow
def test_the_wheel_has_its_kernels_plots_and_data(installed: Installed, tmp_path: Path) -> None:
    inside = ("kernels/", "plots/", "csrc/cuda/", "csrc/emulator/")
    expected = [f"flashperf/{name}" for name in installed.sources if name.startswith(inside)]
    expected += [name for name in installed.sources if name.startswith("flashperf/")]
    assert [name for name in expected if not (installed.site / name).exists()] == []
    assert "explain" in run(installed.site, tmp_path, "-m", "flashperf.cli", "--help")
