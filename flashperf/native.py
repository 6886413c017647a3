"""The CPU kernels: one library per instruction-set level, and ``prepare``, which binds a kernel to its arrays.

``prepare`` checks everything once (types, shapes, contiguity, alignment, overlap) and returns a call that takes
no arguments: passing four NumPy arrays through a binding on every call costs as much as a small kernel does.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from flashperf import _native
from flashperf.isa import runnable_levels
from flashperf.signature import PrepareError, Signature
from flashperf.suggest import unknown_name

__all__ = ["Background", "Call", "Library", "PrepareError", "Sequence", "Signature", "library", "prepare"]

_LIBRARIES = Path(__file__).parent / "_cpu"

Background = _native.Background
Call = _native.Call
Sequence = _native.Sequence


@functools.cache
def usable_levels() -> tuple[str, ...]:
    """The levels that are built and that this CPU (and kernel, for AMX) can run, weakest first."""
    built = [level for level in runnable_levels() if (_LIBRARIES / f"{level}.so").exists()]
    if "amx" in built and not _native.request_amx():
        built.remove("amx")
    if not built:
        raise RuntimeError(f"no CPU kernels in {_LIBRARIES}: build them with `make build`")
    return tuple(built)


def default_level() -> str:
    """The best usable level, or the one that FLASHPERF_ISA names."""
    wanted = os.environ.get("FLASHPERF_ISA", "")
    if not wanted:
        return usable_levels()[-1]
    if wanted not in usable_levels():
        raise ValueError(unknown_name("instruction-set level (FLASHPERF_ISA)", wanted, usable_levels()))
    return wanted


class Library:
    """The kernels of one instruction-set level."""

    def __init__(self, level: str) -> None:
        if level not in usable_levels():
            raise ValueError(unknown_name("instruction-set level", level, usable_levels()))
        self.level = level
        self._library = _native.Library(str(_LIBRARIES / f"{level}.so"))
        self._compiled: dict[str, _native.Kernel] = {}
        self.signatures = {
            name: Signature.parse(name, text, types)
            for name, (text, types) in self._library.kernels().items()
        }

    def prepare(self, kernel: str, *arrays: np.ndarray, **scalars: float) -> Call:
        """Bind ``kernel`` to its arrays (in the signature's order) and its scalars; dimensions are inferred.

        The call keeps the arrays alive. Raises PrepareError on anything that does not fit, with the argument
        and what it needs; the kernel is not run.
        """
        compiled = self._compiled.get(kernel)
        if compiled is None:
            if kernel not in self.signatures:
                raise PrepareError(unknown_name("kernel", kernel, self.signatures))
            compiled = self._library.compile(kernel, self.signatures[kernel].compiled())
            self._compiled[kernel] = compiled
        return compiled.bind(arrays, scalars) or self._checked(kernel, arrays, scalars)

    def _checked(self, kernel: str, arrays: tuple[np.ndarray, ...], scalars: Mapping[str, float]) -> Call:
        """Bind step by step: says what does not fit, and takes scalars of unusual types."""
        signature = self.signatures[kernel]
        addresses = signature.check_arrays(arrays)
        for name in scalars:
            if name not in signature.scalar_names:
                raise PrepareError(f"{kernel}: no scalar {name!r} to set")
        known: dict[str, float] = {**scalars, **signature.dimensions(arrays, scalars)}
        missing = [name for name, _ in signature.scalars if name not in known]
        if missing:
            raise PrepareError(f"{kernel}: needs {', '.join(missing)}")
        return self._library.bind(kernel, addresses, signature.values(known), arrays)


@functools.cache
def library(level: str | None = None) -> Library:
    """The library of a level, the default one if none is named; loaded once per process."""
    return Library(level or default_level())


def prepare(kernel: str, *arrays: np.ndarray, **scalars: float) -> Call:
    """``library().prepare``: bind a kernel of the default level."""
    return library().prepare(kernel, *arrays, **scalars)
