"""nvcc compiles every CUDA kernel for every architecture, and no kernel spills registers to memory."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from flashperf.emulator_build import cache_folder, source_folder

SOURCES = sorted((source_folder() / "cuda").glob("*.cu"))
MAX_STATIC_SHARED_BYTES = 48 << 10
ARCHITECTURES = (
    pytest.param("sm_90a"),
    pytest.param("sm_80", marks=pytest.mark.slow),
    pytest.param("sm_100", marks=pytest.mark.slow),
)


def ptxas_report(source: Path, architecture: str) -> str:
    """What ptxas says about a file; kept by the hash of the file, its headers and the compiler."""
    version = subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=True).stdout
    headers = b"".join(path.read_bytes() for path in sorted(source.parent.glob("*.cuh")))
    key = hashlib.sha256(source.read_bytes() + headers + version.encode()).hexdigest()[:20]
    kept = cache_folder().parent / "ptxas" / f"{source.stem}-{architecture}-{key}.txt"
    if not kept.exists():
        command = ["nvcc", "-std=c++17", "-cubin", f"-arch={architecture}", "-Xptxas", "-v", "-Werror"]
        command += ["all-warnings", str(source), "-o", "/dev/null"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(done.stdout + done.stderr)
    return kept.read_text()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_compiles_without_spills(source: Path, architecture: str) -> None:
    if not shutil.which("nvcc"):
        pytest.skip("nvcc is not on the PATH (pip install nvidia-cuda-nvcc, or a CUDA toolkit)")
    kernels = re.split(r"Compiling entry function '", ptxas_report(source, architecture))[1:]
    assert kernels
    for report in kernels:
        name = report.split("'", 1)[0]
        spills = [int(n) for n in re.findall(r"(\d+) bytes spill (?:stores|loads)", report)]
        assert spills, f"no line about spills for {name}"
        assert not any(spills), f"{name} spills: {spills} bytes"
        static = re.search(r"(\d+) bytes smem", report)
        assert static is None or int(static.group(1)) <= MAX_STATIC_SHARED_BYTES
