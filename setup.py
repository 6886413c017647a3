"""Builds the native parts: the binding module, one CPU kernel library per instruction-set level, and on request
the CUDA kernels.

Every ``csrc/cpu/*.cpp`` is compiled for every level that the compiler knows; which level runs is decided when
the program starts (flashperf/native.py). Objects are kept under build/ by the hash of their source, headers
and flags, so that a second build compiles only what changed. FLASHPERF_CUDA=1 (or sm_90a,sm_100) has nvcc make
fat binaries as well; without it nothing looks for nvcc, and a GPU's kernels are compiled when they are first used.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pybind11.setup_helpers import Pybind11Extension
from setuptools import find_packages, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent
MAPPED = ("kernels", "plots", "csrc")  # folders beside the package that are installed inside it
COMMON_FLAGS = ["-std=c++17", "-O3", "-fPIC", "-fvisibility=hidden", "-fno-math-errno", "-fno-trapping-math"]
COMMON_FLAGS += ["-fopenmp-simd", "-ffp-contract=fast", "-Wall", "-Wextra", "-Wno-psabi"]
# GCC 12 warns about its own intrinsics (https://gcc.gnu.org/PR105593).
COMMON_FLAGS += ["-Wno-uninitialized", "-Wno-maybe-uninitialized"]

ISA = runpy.run_path(str(ROOT / "flashperf" / "isa.py"))
CUDA = runpy.run_path(str(ROOT / "flashperf" / "cuda" / "binaries.py"))


def compiler() -> str:
    """The C++ compiler: CXX, else g++ or clang++."""
    candidates = [os.environ.get("CXX", ""), "g++", "clang++", "c++"]
    for name in filter(None, candidates):
        if shutil.which(name):
            return name
    sys.exit(
        "flashperf needs a C++17 compiler, and found none of g++, clang++, c++. On Debian: apt-get install g++"
    )


def understands(cxx: str, flags: list[str]) -> bool:
    """Whether the compiler accepts the flags of a level."""
    command = [cxx, *flags, "-x", "c++", "-fsyntax-only", os.devnull]
    return subprocess.run(command, capture_output=True).returncode == 0


def levels(cxx: str) -> dict[str, list[str]]:
    """Levels to build, with their flags: all that the compiler knows, or with FLASHPERF_LEVELS=native the best
    that this CPU runs (for a quick set-up).
    """
    known: dict[str, list[str]] = {}
    flags: list[str] = []
    for level in ISA["known_levels"]():
        flags = [*flags, *level.compile]
        if understands(cxx, flags):
            known[level.name] = flags
        else:
            print(f"skipping the {level.name} kernels: {cxx} does not know {' '.join(level.compile)}")
    if os.environ.get("FLASHPERF_LEVELS") == "native":
        best = [name for name in ISA["runnable_levels"]() if name in known][-1]
        known = {best: known[best]}
    return known


class BuildKernels(build_ext):
    """``build_ext`` that also builds the kernel libraries, next to the binding module."""

    def run(self) -> None:
        super().run()
        package = ROOT / "flashperf" if self.inplace else Path(self.build_lib) / "flashperf"
        self._build_libraries(package / "_cpu")
        if wanted := os.environ.get("FLASHPERF_CUDA", ""):
            build_cuda(package / "_cuda", CUDA["ARCHITECTURES"] if wanted == "1" else wanted.split(","))

    def _build_libraries(self, folder: Path) -> None:
        (ROOT / "build").mkdir(exist_ok=True)
        with open(ROOT / "build" / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # two builds at once take turns
            self._build_locked(folder)

    def _build_locked(self, folder: Path) -> None:
        cxx = compiler()
        folder.mkdir(parents=True, exist_ok=True)
        sources = sorted((ROOT / "csrc" / "cpu").glob("*.cpp"))
        headers = b"".join(p.read_bytes() for p in sorted((ROOT / "csrc" / "cpu").glob("*.h")))
        version = subprocess.run([cxx, "--version"], capture_output=True).stdout
        known = levels(cxx)
        jobs = []
        for level, flags in known.items():
            for source in sources:
                command = [cxx, *COMMON_FLAGS, *flags]
                key = hashlib.sha256(source.read_bytes() + headers + version + repr(command).encode())
                target = ROOT / "build" / "cpu" / level / f"{source.stem}-{key.hexdigest()[:16]}.o"
                jobs.append((level, source, target, [*command, "-c", str(source), "-o", str(target)]))
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            list(pool.map(lambda job: compile_object(job[2], job[3]), jobs))
        for level, flags in known.items():
            objects = [str(target) for job_level, _, target, _ in jobs if job_level == level]
            library = folder / f"{level}.so"
            linked = library.with_suffix(".so.new")
            subprocess.run([cxx, "-shared", "-pthread", *flags, *objects, "-o", str(linked)], check=True)
            linked.replace(library)  # never overwrite in place: a running process has the old one mapped


def compile_object(target: Path, command: list[str]) -> None:
    """Compile one object unless it is already there; its name holds the hash of all that it depends on."""
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    for old in target.parent.glob(f"{target.name.rsplit('-', 1)[0]}-*.o"):
        old.unlink(missing_ok=True)
    partial = target.with_suffix(".part")
    result = subprocess.run([*command[:-1], str(partial)], capture_output=True, text=True)
    if result.returncode:
        raise SystemExit(f"compiling failed: {' '.join(command)}\n{result.stderr}")
    if result.stderr:
        print(result.stderr)
    partial.rename(target)


def build_cuda(folder: Path, architectures: Sequence[str]) -> None:
    """A fat binary of every ``.cu`` file, those that are still right left as they are."""
    nvcc = os.environ.get("NVCC", "nvcc")
    if not shutil.which(nvcc):
        sys.exit(f"FLASHPERF_CUDA asks for the CUDA kernels, and {nvcc} is not on the PATH")
    sources = sorted((ROOT / "csrc" / "cuda").glob("*.cu"))
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        problems = list(filter(None, pool.map(lambda s: CUDA["build"](s, folder, architectures), sources)))
    if problems:
        sys.exit("compiling the CUDA kernels failed\n" + "\n".join(problems))


setup(
    packages=[
        *find_packages(include=["flashperf", "flashperf.*"]),
        *(f"flashperf.{folder}" for folder in MAPPED),
    ],
    package_dir={f"flashperf.{folder}": folder for folder in MAPPED},
    ext_modules=[
        Pybind11Extension(
            "flashperf._native",
            ["csrc/python/native.cpp"],
            depends=["csrc/cpu/kernel.h", "csrc/python/calls.h", "csrc/python/signature.h"],
            cxx_std=17,
            libraries=["dl", "pthread"],
        )
    ],
    cmdclass={"build_ext": BuildKernels},
)
