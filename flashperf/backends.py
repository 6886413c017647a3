"""Where kernels can run, and why they can't here.

A backend that is missing is a skip with its reason, no error.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from flashperf.errors import UserError
from flashperf.suggest import unknown_name


class Backend(Protocol):
    """A place where kernels run."""

    @property
    def name(self) -> str:
        """What cases and options call it."""

    def why_not(self) -> str:
        """Empty if kernels can run here, else the reason why not."""


@dataclass(frozen=True)
class _Backend:
    name: str
    look: Callable[[], str]

    def why_not(self) -> str:
        return self.look()


def _cpu() -> str:
    return ""


@functools.cache
def _no_gpu() -> str:
    """Why there is no CUDA device. The driver is looked for first: CuPy's own message for that is a guess."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no NVIDIA driver (libcuda.so.1 is not found)"
    return ""


@functools.cache
def _cuda() -> str:
    missing = _no_gpu()
    if missing:
        return missing
    if importlib.util.find_spec("cupy") is None:
        return "CuPy is not installed (pip install 'flashperf[cuda]')"
    import cupy

    try:
        return "" if cupy.cuda.is_available() else "CuPy finds no CUDA device"
    except Exception as error:  # CuPy wraps a driver that is broken or too old in errors of its own
        return f"CuPy can't use the driver: {error}"


def _triton() -> str:
    for package in ("triton", "torch"):
        if importlib.util.find_spec(package) is None:
            return f"{package} is not installed (pip install 'flashperf[triton]')"
    if os.environ.get("TRITON_INTERPRET") == "1" and not _no_gpu():
        return "TRITON_INTERPRET=1 runs the kernels in Triton's interpreter, which checks them and is never timed"
    return _no_gpu()


BACKENDS: dict[str, Backend] = {
    backend.name: backend
    for backend in (_Backend("cpu", _cpu), _Backend("cuda", _cuda), _Backend("triton", _triton))
}


def backend(name: str) -> Backend:
    """The backend called ``name``. Raises UserError with the nearest names if there is none."""
    if name not in BACKENDS:
        raise UserError(unknown_name("backend", name, BACKENDS))
    return BACKENDS[name]


def driver_missing() -> str:
    """Empty if there is an NVIDIA driver, else what wasn't found; imports nothing."""
    return _no_gpu()


def available(name: str) -> str:
    """Empty if the backend can be used here, else why not. Raises UserError for a name that is no backend."""
    return backend(name).why_not()
