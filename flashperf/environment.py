"""What a measurement was made on: everything that two runs must share to be compared, and how busy it was."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from flashperf import native
from flashperf.disturbance import cgroup_files
from flashperf.processor import cpu_model as cpu_model
from flashperf.records import Environment
from flashperf.timers import SYSTEM_CLOCK, resolution_s

#: CPU flags that decide which kernels run and how fast: vector width, matrix units, half types.
_X86 = "avx2 fma f16c avx512f avx512_vnni avx512_bf16 avx512_fp16 avx_vnni amx_tile amx_bf16 amx_int8"
RELEVANT_FLAGS = (*_X86.split(), *["asimd", "asimddp", "bf16", "i8mm", "sve"])
PACKAGES = ("numpy", "scipy", "torch", "triton", "cupy-cuda13x", "cupy-cuda12x", "pytest", "pytest-benchmark")

BUSY_PRESSURE_PERCENT = 5.0  # of the last 10 s in which some task waited for a core
BUSY_LOAD_PER_CORE = 0.25  # runnable tasks beside this one, per core


def capture(threads: int = 1, root: Path = Path("/"), checkout: Path | None = None) -> Environment:
    """The environment now. ``threads`` is how many the kernels use; ``root`` holds proc and sys (for tests).

    Commit and dirty are those of the git checkout that holds ``checkout`` (default: the current directory);
    empty and False outside of one. A missing file gives None or "", never an error. Imports no torch.
    """
    cores = usable_cores()
    load, pressure = load_1min(root), pressure_some_avg10(root)
    reason = busy_reason(load, pressure, cores)
    commit, dirty = git_state(checkout or Path.cwd())
    return Environment(
        device=cpu_model(root),
        isa=isa(root),
        threads=threads,
        cores=cores,
        quota_cores=quota_cores(root),
        clock_mhz=clock_mhz(root),
        load_1min=load,
        pressure_some_avg10=pressure,
        timer=SYSTEM_CLOCK.name,
        timer_resolution_s=resolution_s(),
        python=platform.python_version(),
        os=f"{platform.system()} {platform.release()}",
        compiler=compiler(),
        driver=nvidia_driver(root),
        versions={**versions(), **gpu(root)},
        commit=commit,
        dirty=dirty,
        busy=bool(reason),
        busy_reason=reason,
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def isa(root: Path = Path("/")) -> tuple[str, ...]:
    """The relevant flags of this CPU, and last the level of the kernels in use: ``kernels:avx512_bf16``."""
    match = re.search(r"^(?:flags|Features)\s*:\s*(.*)$", _text(root / "proc/cpuinfo"), re.MULTILINE)
    flags = set(match.group(1).split()) if match else set()
    try:
        level = native.default_level()
    except (RuntimeError, ValueError):  # not built, or FLASHPERF_ISA names none
        level = "none"
    return (*(flag for flag in RELEVANT_FLAGS if flag in flags), f"kernels:{level}")


def usable_cores() -> int:
    """Cores that this process may run on, by its affinity."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def quota_cores(root: Path = Path("/")) -> float | None:
    """The tightest CPU quota of the cgroup and its parents, in cores; None if there is none."""
    quotas = []
    for file in cgroup_files(root, "cpu.max"):  # v2: "quota period" in us, or "max period"
        quota, _, period = _text(file).strip().partition(" ")
        quotas += _quota(quota, period)
    for file in cgroup_files(root, "cpu.cfs_quota_us"):  # v1: two files, -1 for no quota
        quotas += _quota(_text(file).strip(), _text(file.with_name("cpu.cfs_period_us")).strip())
    return min(quotas, default=None)


def _quota(quota_us: str, period_us: str) -> list[float]:
    if quota_us.isdigit() and period_us.isdigit() and int(period_us):
        return [int(quota_us) / int(period_us)]
    return []


def clock_mhz(root: Path = Path("/")) -> float | None:
    """The mean clock over the cores, MHz: from cpufreq, else from /proc/cpuinfo."""
    files = sorted((root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_cur_freq"))
    values = [int(text) / 1000 for file in files if (text := _text(file).strip()).isdigit()]
    if not values:
        values = [
            float(v)
            for v in re.findall(r"^cpu MHz\s*:\s*([\d.]+)", _text(root / "proc/cpuinfo"), re.MULTILINE)
        ]
    return round(sum(values) / len(values), 1) if values else None


def load_1min(root: Path = Path("/")) -> float | None:
    """The load average over the last minute; it counts this process too."""
    match = re.match(r"([\d.]+)", _text(root / "proc/loadavg"))
    return float(match.group(1)) if match else None


def pressure_some_avg10(root: Path = Path("/")) -> float | None:
    """Percent of the last 10 s in which some task waited for a core; None before Linux 4.20."""
    match = re.search(r"^some avg10=([\d.]+)", _text(root / "proc/pressure/cpu"), re.MULTILINE)
    return float(match.group(1)) if match else None


def busy_reason(load: float | None, pressure: float | None, cores: int) -> str:
    """Why this machine is not quiet; empty if it is, or if nothing is known.

    The load counts one for ourselves.
    """
    if pressure is not None and pressure > BUSY_PRESSURE_PERCENT:
        return f"tasks waited for a core in {pressure:.0f} % of the last 10 s"
    if load is not None and load - 1 > BUSY_LOAD_PER_CORE * cores:
        return f"load {load:.2f} on {cores} core{'s' * (cores > 1)}"
    return ""


@functools.cache
def compiler() -> str:
    """The compiler that built the kernels, as their library records it; else the one on the path."""
    for library in sorted((Path(native.__file__).parent / "_cpu").glob("*.so")):
        match = re.search(rb"GCC: \([^\0)]*\) [\d.]+|clang version [\d.]+", library.read_bytes())
        if match:
            return match.group().decode()
    for name in ("g++", "clang++", "c++"):
        if shutil.which(name):
            return _run([name, "--version"]).partition("\n")[0]
    return ""


def nvidia_driver(root: Path = Path("/")) -> str:
    """The version of the NVIDIA kernel driver, or empty."""
    match = re.search(r"Kernel Module\D*([\d.]+)", _text(root / "proc/driver/nvidia/version"))
    return match.group(1) if match else ""


def gpu(root: Path = Path("/")) -> dict[str, str]:
    """``{"gpu": name}`` of the first NVIDIA GPU, as its kernel driver says; empty without one."""
    for file in sorted((root / "proc/driver/nvidia/gpus").glob("*/information")):
        match = re.search(r"^Model:\s*(.+)$", _text(file), re.MULTILINE)
        if match:
            return {"gpu": match.group(1).strip()}
    return {}


@functools.cache
def versions() -> dict[str, str]:
    """Versions of the installed packages, from their metadata (none is imported), and NumPy's BLAS."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    built: Any = np.show_config(mode="dicts")
    blas = built.get("Build Dependencies", {}).get("blas", {})
    found["blas"] = f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip()
    return found


def git_state(folder: Path) -> tuple[str, bool]:
    """(commit, whether tracked files differ from it) of the checkout around ``folder``, or ("", False)."""
    commit = _run(["git", "-C", str(folder), "rev-parse", "HEAD"]).strip()
    if not re.fullmatch(r"[0-9a-f]{40,64}", commit):
        return "", False
    return commit, bool(
        _run(["git", "-C", str(folder), "status", "--porcelain", "--untracked-files=no"]).strip()
    )


def _run(command: list[str]) -> str:
    """Standard output of a command; empty if it fails, is missing or takes over 10 s."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, errors="replace")
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def last_level_cache_bytes(root: Path = Path("/")) -> int:
    """Size of the largest cache that the first core sees; 32 MiB where the system doesn't say."""
    sizes = [_text(f) for f in (root / "sys/devices/system/cpu/cpu0/cache").glob("index[0-9]*/size")]
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    matches = [re.match(r"(\d+)([KMG])", size) for size in sizes]
    return max((int(m.group(1)) * units[m.group(2)] for m in matches if m), default=32 << 20)
