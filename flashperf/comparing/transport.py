"""Sends callables and arrays to a fresh process: by reference where it can import them, else by value.

``pickle`` refers to functions by module and name, which a lambda, a closure and anything typed into an
interactive session don't have. Such a function goes as its code, its closure and the globals that it names.
A class of the main script goes by reference: the receiver runs the script up to its first
``flashperf.compare`` and takes it from there. Both ends are the same interpreter on the same machine;
nothing from elsewhere is ever loaded.
"""

from __future__ import annotations

import builtins
import dis
import importlib
import io
import marshal
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

from flashperf.errors import UserError

MAIN = "__main__"
_EMPTY_CELL = "flashperf.comparing.transport: empty cell"

_loading_script = False
_globals_of: dict[int, dict[str, Any]] = {}  # receiver: functions that shared their globals do so again


class TransportError(UserError):
    """An object that another process can't be given; the message says which and why."""


class ReachedCompare(BaseException):
    """Ends the run of a script in a worker at its first comparison: all that it needs is defined by then."""


def stop_if_loading() -> None:
    """Called where a comparison begins: in a worker that only loads the script, this is far enough."""
    if _loading_script:
        raise ReachedCompare


def script_path() -> str:
    """The file of the main program, or "" in an interactive session."""
    path = getattr(sys.modules.get(MAIN), "__file__", None)
    return str(Path(path).resolve()) if path and Path(path).is_file() else ""


def dumps(value: Any) -> bytes:
    """``value`` as bytes for ``loads`` in another process. Raises TransportError, naming what can't be sent.

    Functions of the main script go by value first, so that the script needn't be run; where that fails
    (they use an object that can't be pickled) by reference.
    """
    problem: Exception | None = None
    for by_value in (True, False):
        if not by_value and not script_path():
            break
        buffer = io.BytesIO()
        pickler = _Pickler(buffer, by_value)
        try:
            pickler.dump(value)
        except (pickle.PicklingError, TypeError, AttributeError, ValueError, RecursionError) as error:
            problem = problem or error
            continue
        if pickler.main_names and not script_path():
            raise TransportError(f"{pickler.main_names[0]} is a class of an interactive session")
        script = script_path() if pickler.main_names else ""
        return pickle.dumps((script, buffer.getvalue()))
    raise TransportError(str(problem))


def loads(data: bytes) -> Any:
    """The inverse of ``dumps``, in another process of the same interpreter."""
    script, payload = pickle.loads(data)
    main = _load_script(script) if script else None
    return _Unpickler(io.BytesIO(payload), main).load()


class _Pickler(pickle.Pickler):
    def __init__(self, buffer: io.BytesIO, by_value: bool) -> None:
        super().__init__(buffer, protocol=pickle.HIGHEST_PROTOCOL)
        self.by_value = by_value
        self.main_names: list[str] = []  # what the receiver has to take from the main script

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, ModuleType):
            if value.__name__ == MAIN:
                raise pickle.PicklingError("the main module itself can't be sent")
            return importlib.import_module, (value.__name__,)
        if isinstance(value, type) and value.__module__ == MAIN:
            self.main_names.append(value.__qualname__)
        if isinstance(value, FunctionType):
            if not _importable(value):
                return self._function(value)
            if value.__module__ == MAIN:
                if self.by_value:
                    return self._function(value)
                self.main_names.append(value.__qualname__)
        return NotImplemented

    @staticmethod
    def _function(function: FunctionType) -> Any:
        names: set[str] = set()
        attributes: set[str] = set()
        for code in _codes(function.__code__):
            attributes.update(code.co_names)
            names.update(i.argval for i in dis.get_instructions(code) if i.opname == "LOAD_GLOBAL")
        used = {name: function.__globals__[name] for name in names if name in function.__globals__}
        cells = [_cell_value(cell) for cell in function.__closure__ or ()]
        state = {
            "globals": used,
            "imports": _submodules([*used.values(), *cells], attributes),
            "cells": cells,
            "attributes": {"__defaults__": function.__defaults__, "__kwdefaults__": function.__kwdefaults__},
        }
        packed = marshal.dumps(function.__code__)
        arguments = (packed, function.__name__, id(function.__globals__), len(cells))
        return _make_function, arguments, state, None, None, _fill_function


def _importable(function: FunctionType) -> bool:
    """Whether module and qualified name lead back to this very function."""
    found: Any = sys.modules.get(function.__module__)
    for part in function.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is function


def _codes(code: CodeType) -> Iterator[CodeType]:
    """The code of a function and of everything defined inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _submodules(used: list[Any], attributes: set[str]) -> list[str]:
    """Submodules reached by attribute, as in ``import scipy.special`` and ``scipy.special.erf``."""
    packages = [value.__name__ for value in used if isinstance(value, ModuleType)]
    return [
        name
        for name in list(sys.modules)
        for package in packages
        if name.startswith(package + ".") and attributes.issuperset(name[len(package) + 1 :].split("."))
    ]


def _cell_value(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _EMPTY_CELL


def _make_function(code: bytes, name: str, globals_id: int, cells: int) -> FunctionType:
    namespace = _globals_of.setdefault(globals_id, {"__builtins__": builtins, "__name__": "flashperf.sent"})
    closure = tuple(CellType() for _ in range(cells))
    return FunctionType(marshal.loads(code), namespace, name, None, closure)


def _fill_function(function: FunctionType, state: dict[str, Any]) -> None:
    for name in state["imports"]:
        importlib.import_module(name)
    function.__globals__.update(state["globals"])
    for cell, value in zip(function.__closure__ or (), state["cells"], strict=True):
        if not (isinstance(value, str) and value == _EMPTY_CELL):
            cell.cell_contents = value
    for name, value in state["attributes"].items():
        setattr(function, name, value)


class _Unpickler(pickle.Unpickler):
    def __init__(self, buffer: io.BytesIO, main: ModuleType | None) -> None:
        super().__init__(buffer)
        self._main = main

    def find_class(self, module: str, name: str) -> Any:
        if module == MAIN and self._main is not None:
            found: Any = self._main
            for part in name.split("."):
                found = getattr(found, part)
            return found
        return super().find_class(module, name)


def _load_script(path: str) -> ModuleType:
    """Run the main script under another name, up to its first comparison, and return what it defined."""
    global _loading_script
    module = ModuleType("__flashperf_main__")
    module.__file__ = path
    sys.modules[module.__name__] = module
    _loading_script = True
    try:
        exec(compile(Path(path).read_bytes(), path, "exec"), module.__dict__)
    except ReachedCompare:
        pass
    finally:
        _loading_script = False
    return module
