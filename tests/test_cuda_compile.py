"""nvcc has nothing to warn of in any CUDA file; what it makes of the kernels is in test_inspect_kernels.py."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from flashperf.emulator_build import cache_folder, source_folder
from flashperf.machine_code import toolchain

SOURCES = sorted((source_folder() / "cuda").glob("*.cu"))
#: To PTX alone: warnings come before the assembler, and are the same for every architecture.
FLAGS = ("-std=c++17", "-ptx", "-arch=sm_90a", "-Werror", "all-warnings")


def warnings_of(source: Path) -> str:
    """What nvcc says about a file; that it says nothing is kept by the hash of the file, its headers and nvcc."""
    nvcc = str(toolchain.tool("nvcc"))
    version = subprocess.run([nvcc, "--version"], capture_output=True, check=True).stdout
    headers = b"".join(path.read_bytes() for path in sorted(source.parent.glob("*.cuh")))
    key = hashlib.sha256(source.read_bytes() + headers + version + repr(FLAGS).encode()).hexdigest()[:20]
    kept = cache_folder().parent / "warnings" / f"{source.stem}-{key}"
    if kept.exists():
        return ""
    done = subprocess.run([nvcc, *FLAGS, str(source), "-o", "/dev/null"], capture_output=True, text=True)
    if done.returncode == 0:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.touch()
        return ""
    return done.stderr or done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_compiles_without_a_warning(source: Path) -> None:
    if reason := toolchain.why_not("nvcc"):
        pytest.skip(reason)
    assert warnings_of(source) == ""


def test_a_warning_is_found(tmp_path: Path) -> None:
    if reason := toolchain.why_not("nvcc"):
        pytest.skip(reason)
    source = tmp_path / "unused.cu"
    source.write_text('extern "C" __global__ void kernel() { int never_read = 3; }\n')
    assert "never_read" in warnings_of(source)
