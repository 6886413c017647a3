"""Finds NVIDIA's compiler and disassemblers: on the PATH, in a toolkit, in the wheels of PyPI, in Triton."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from flashperf.errors import UserError
from flashperf.suggest import unknown_name

#: Tool -> what to install where it is missing.
_PACKAGES = {
    "nvcc": "nvidia-cuda-nvcc nvidia-nvvm nvidia-cuda-crt nvidia-cuda-runtime nvidia-cuda-cccl",
    "nvdisasm": "nvidia-cuda-nvdisasm",
    "cuobjdump": "nvidia-cuda-cuobjdump",
}


def _folders() -> Iterator[Path]:
    """Where a tool may lie besides the PATH, the likeliest first."""
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield Path(os.environ[variable]) / "bin"
    for entry in sys.path:
        yield from sorted((Path(entry) / "nvidia").glob("*/bin"), reverse=True)
    triton = importlib.util.find_spec("triton")  # found, not imported
    if triton is not None and triton.origin:
        yield Path(triton.origin).parent / "backends" / "nvidia" / "bin"
    yield Path("/usr/local/cuda/bin")


@functools.cache
def find(name: str) -> Path | None:
    """The program ``name``, or None."""
    if name not in _PACKAGES:
        raise ValueError(unknown_name("tool", name, _PACKAGES))
    on_path = shutil.which(name)
    if on_path:
        return Path(on_path)
    return next((folder / name for folder in _folders() if os.access(folder / name, os.X_OK)), None)


def why_not(*names: str) -> str:
    """Empty if all of these programs (default: all that are needed) are here, else which isn't, and the remedy."""
    missing = [name for name in names or _PACKAGES if find(name) is None]
    if not missing:
        return ""
    packages = " ".join(_PACKAGES[name] for name in missing)
    return f"{' and '.join(missing)} not found (install a CUDA toolkit, or pip install {packages})"


def tool(name: str) -> Path:
    """The program ``name``. Raises UserError, with what to install, where it is missing."""
    reason = why_not(name)
    if reason:
        raise UserError(reason)
    found = find(name)
    assert found is not None
    return found


@functools.cache
def version(name: str) -> str:
    """What ``name --version`` says, for cache keys and reports."""
    return subprocess.run([tool(name), "--version"], capture_output=True, text=True).stdout.strip()
