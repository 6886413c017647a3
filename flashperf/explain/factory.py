"""Anybody's pipeline as a worker's subject: ``factory(**levels)`` returns a callable, and that is what is timed."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import math
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from flashperf.errors import EXIT_FAILED, UserError
from flashperf.explain.same_result import SameResult
from flashperf.units import seconds as short_time

Factory = Callable[..., Callable[[], Any]]
SHORT_S = 10e-6  # a hundred times what reading the clock takes


class FactorySubject:
    """Mixtures of a user's factory. A callable is made at its first use after every ``rebuild`` and run once.

    What that run returns is compared with what ``standard`` returns.
    """

    def __init__(self, target: str, standard: Mapping[str, str]) -> None:
        self.factory = load_factory(target)
        self._standard = dict(standard)
        self._expected: SameResult | None = None
        self._calls: dict[tuple[tuple[str, str], ...], Callable[[], Any]] = {}
        self._shortest_s = math.inf

    def rebuild(self, seed: int) -> None:
        """Drop every callable, and with it the buffers that it holds."""
        self._calls = {}

    def prepare(self, levels: Mapping[str, str]) -> None:
        """Make the callable of one mixture and run it once, untimed. Raises UserError if its result is wrong."""
        key = tuple(sorted(levels.items()))
        if key in self._calls:
            return
        call, result = self._made(levels)
        if self._expected is None:
            standard = result if levels == self._standard else self._made(self._standard)[1]
            self._expected = SameResult(standard)
        self._expected.check(result, _words(levels))
        self._calls[key] = call

    def remarks(self) -> list[str]:
        """What a reader of the result has to know: that nothing was compared, that calls are too short."""
        said = []
        if self._expected is None or not self._expected.compared:
            said.append("results were not compared: the callable of Standard returns no floating array")
        if self._shortest_s < SHORT_S:
            said.append(
                f"a call takes {short_time(self._shortest_s)}, and is timed by itself: reading the clock and calling "
                "are part of it; let it do its work many times over"
            )
        return said

    def _made(self, levels: Mapping[str, str]) -> tuple[Callable[[], Any], Any]:
        """A new callable, and what its first run returns."""
        mixture = _words(levels)
        try:
            call = self.factory(**levels)
        except Exception as error:
            raise UserError(f"the factory failed for {mixture}: {type(error).__name__}: {error}") from error
        if not callable(call):
            raise UserError(f"the factory returned a {type(call).__name__} for {mixture}, not a callable")
        try:
            return call, call()
        except Exception as error:
            raise UserError(f"the callable failed for {mixture}: {type(error).__name__}: {error}") from error

    def run(self, levels: Mapping[str, str]) -> dict[str, float]:
        """Wall seconds of one call."""
        call = self._calls[tuple(sorted(levels.items()))]
        begin = time.perf_counter()
        try:
            call()
        except Exception as error:
            message = f"a timed run failed for {_words(levels)}: {type(error).__name__}: {error}"
            raise UserError(message, EXIT_FAILED) from error
        seconds = time.perf_counter() - begin
        self._shortest_s = min(self._shortest_s, seconds)
        return {"seconds": seconds}


def _words(levels: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={level}" for name, level in levels.items())


def load_factory(target: str) -> Factory:
    """``module:name`` (importable, the current folder included) or ``path/to/file.py:name``.

    Raises UserError if there is no such module, file or function.
    """
    module_name, colon, name = target.rpartition(":")
    if not colon or not module_name or not name:
        raise UserError(f"{target!r} does not name a factory: write MODULE:FACTORY or FILE.py:FACTORY")
    module = _load_file(Path(module_name)) if module_name.endswith(".py") else _import(module_name)
    factory = module
    for part in name.split("."):
        if not hasattr(factory, part):
            near = [n for n in vars(module) if callable(getattr(module, n)) and not n.startswith("_")]
            raise UserError(
                f"{module_name} has no {name!r}; it has {', '.join(sorted(near)) or 'no functions'}"
            )
        factory = getattr(factory, part)
    if not callable(factory):
        raise UserError(f"{target} is a {type(factory).__name__}, not a function")
    return factory  # type: ignore[return-value]


def _import(name: str) -> ModuleType:
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserError(f"can't import {name}: {error}") from error


def _load_file(path: Path) -> ModuleType:
    """A module from a file, under a name of its own so that ``if __name__ == "__main__"`` does not run."""
    if not path.is_file():
        raise UserError(f"there is no file {path}")
    spec = importlib.util.spec_from_file_location(f"_flashperf_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UserError(f"{path} failed to load: {type(error).__name__}: {error}") from error
    return module


def target_of(factory: Factory) -> str:
    """Where a worker finds a factory: its file and name. Raises UserError for one that only this process knows."""
    name = getattr(factory, "__qualname__", "")
    if "<" in name or not name:
        raise UserError(f"workers can't load {factory!r}: define the factory at the top level of a file")
    try:
        file = inspect.getsourcefile(factory)
    except TypeError:
        file = None
    if file is None or not Path(file).is_file():
        raise UserError(f"workers can't load {name}: it is defined in an interactive session, not in a file")
    return f"{Path(file).resolve()}:{name}"
