"""Binders of the backends that are not the CPU: imported when a case is bound, not with the definition."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from flashperf.records import Arrays, Binder, Case

#: Backend -> the package with a module per mechanism, in which ``bind_<backend>`` is.
PACKAGES = {"cuda": "flashperf.cuda", "triton": "flashperf.kernels"}


def binder(backend: str, mechanism: str) -> Binder:
    """``bind_<backend>`` of the mechanism's module. What it needs (CuPy, torch, g++) is imported with it."""

    def bind(case: Case, inputs: Arrays, outputs: Arrays) -> Callable[[], None]:
        module = importlib.import_module(f"{PACKAGES[backend]}.{mechanism}")
        call: Callable[[], None] = getattr(module, f"bind_{backend}")(case, inputs, outputs)
        return call

    return bind
