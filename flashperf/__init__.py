"""flashperf: why the fast variant is slow, by measurement.

Names are imported when they are first used, so that ``import flashperf`` costs nothing and imports no
NumPy. ``flashperf.compare`` and ``flashperf.explain`` are modules that are called like their function of
the same name.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flashperf.advice import advice as advice
    from flashperf.compare import compare as compare
    from flashperf.crossover import crossover as crossover
    from flashperf.explain import explain as explain
    from flashperf.problem import WrongResult as WrongResult
    from flashperf.records import ArraySpec as ArraySpec
    from flashperf.records import Case as Case
    from flashperf.records import Cost as Cost
    from flashperf.records import Mechanism as Mechanism
    from flashperf.records import Tolerance as Tolerance

__version__ = "0.1.0"

_FUNCTIONS = ("advice", "compare", "crossover", "explain")
_EXPORTS = dict.fromkeys(("ArraySpec", "Case", "Cost", "Mechanism", "Tolerance"), "flashperf.records")
_EXPORTS["WrongResult"] = "flashperf.problem"

__all__ = [*("ArraySpec", "Case", "Cost", "Mechanism", "Tolerance", "WrongResult"), *_FUNCTIONS]


class _CallableModule(ModuleType):
    """A module that is called like the function that it is named after."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return getattr(self, self.__name__.rpartition(".")[2])(*args, **kwargs)

    @property
    def __signature__(self) -> Any:
        import inspect

        return inspect.signature(getattr(self, self.__name__.rpartition(".")[2]))


class _Package(ModuleType):
    """Makes the modules of _FUNCTIONS callable when the import system attaches them to the package."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _FUNCTIONS and isinstance(value, ModuleType):
            value.__class__ = _CallableModule
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name in _FUNCTIONS:
        return importlib.import_module(f"flashperf.{name}")
    if name in _EXPORTS:
        return getattr(importlib.import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module 'flashperf' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
