"""What this machine has: the GPU, the packages that stages need, and the folder that results go to."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from flashperf.backends import available

#: Import name -> distributions that have it, for what stages use beyond the core.
PACKAGES: dict[str, tuple[str, ...]] = {
    "torch": ("torch",),
    "triton": ("triton",),
    "cupy": ("cupy-cuda13x", "cupy-cuda12x", "cupy"),
    "pytest": ("pytest",),
    "pytest_benchmark": ("pytest-benchmark",),
    "pybind11": ("pybind11",),
    "pynvml": ("nvidia-ml-py",),
}
_QUERY = "name,driver_version,compute_cap,memory.total,clocks.max.sm,power.limit"


@dataclass(frozen=True)
class Machine:
    """gpu: its name, empty without one; architecture: such as "sm_90a"; missing: packages that aren't installed."""

    gpu: str
    why_not: str
    architecture: str
    details: dict[str, str]
    versions: dict[str, str]
    missing: tuple[str, ...]
    nvcc: str

    @property
    def folder_name(self) -> str:
        """The GPU's name as a folder: ``nvidia-h200``; ``emulator`` without one."""
        return re.sub(r"[^a-z0-9]+", "-", self.gpu.lower()).strip("-") or "emulator"


def look() -> Machine:
    """Find out. Nothing heavy is imported: nvidia-smi and package metadata say it."""
    why_not = available("cuda")
    details = {} if why_not else _nvidia_smi()
    capability = details.get("compute_cap", "")
    versions = {"python": platform.python_version()}
    missing = []
    for module, distributions in PACKAGES.items():
        if importlib.util.find_spec(module) is None:
            missing.append(distributions[0])
        else:
            versions[module] = _version(distributions)
    return Machine(
        gpu="" if why_not else details.get("name", "unknown GPU"),
        why_not=why_not,
        architecture=architecture(capability),
        details=details,
        versions=versions,
        missing=tuple(missing),
        nvcc=_nvcc(),
    )


def architecture(compute_capability: str) -> str:
    """``9.0`` -> ``sm_90a``: from 9.0 on the features of one generation alone are asked for. Empty for nothing."""
    number = compute_capability.replace(".", "")
    if not number.isdigit():
        return ""
    return f"sm_{number}a" if int(number) >= 90 else f"sm_{number}"


def _nvidia_smi() -> dict[str, str]:
    """The first GPU as nvidia-smi describes it; empty where there is no such program."""
    if not shutil.which("nvidia-smi"):
        return {}
    command = ["nvidia-smi", f"--query-gpu={_QUERY}", "--format=csv,noheader", "--id=0"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    values = (value.strip() for value in done.stdout.splitlines()[0].split(","))
    return dict(zip(_QUERY.split(","), values, strict=False))


def _version(distributions: tuple[str, ...]) -> str:
    for name in distributions:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return "unknown"


def _nvcc() -> str:
    """nvcc's version line, or empty."""
    if not shutil.which("nvcc"):
        return ""
    done = subprocess.run(["nvcc", "--version"], capture_output=True, text=True)
    found = re.search(r"release ([\d.]+)", done.stdout)
    return found.group(1) if found else ""


def checkout() -> Path:
    """The folder that tests, benches and results are in."""
    return Path(__file__).resolve().parent.parent.parent
