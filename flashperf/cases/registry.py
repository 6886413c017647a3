"""Finds the cases: every module of ``flashperf/cases/definitions`` with a ``CASE``, and files that are named."""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import os
import pkgutil
import re
import sys
import traceback
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from flashperf.cases import definitions
from flashperf.cases.definition import OpenCase
from flashperf.cases.rules import MECHANISMS
from flashperf.errors import UserError
from flashperf.suggest import unknown_name


@functools.cache
def all_cases() -> tuple[OpenCase, ...]:
    """Every case of the program, by id. Raises UserError if a definition is wrong or two share an id or a name."""
    names = [found.name for found in pkgutil.iter_modules(definitions.__path__)]
    cases = [importlib.import_module(f"{definitions.__name__}.{name}").CASE for name in names]
    return tuple(sorted(distinct(map(checked, cases)), key=lambda case: _natural(case.id)))


def distinct(cases: Iterable[OpenCase]) -> list[OpenCase]:
    """Cases in order, each once. Raises UserError if two different ones share an id or a name."""
    found: list[OpenCase] = []
    for case in cases:
        for other in found:
            if other.reference != case.reference and (other.id == case.id or other.name == case.name):
                raise UserError(f"two cases have the id {case.id} or the name {case.name}")
        if case.reference not in [other.reference for other in found]:
            found.append(case)
    return found


def _natural(text: str) -> list[int | str]:
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", text)]


def case_named(name: str) -> OpenCase:
    """A case by its id (``A4``, any case), its name or the file of its definition. Raises UserError."""
    if name.endswith(".py") or os.sep in name:
        return case_in_file(os.path.abspath(name))
    for case in all_cases():
        if name.lower() in (case.id.lower(), case.name):
            return case
    valid = [text for case in all_cases() for text in (case.id, case.name)]
    raise UserError(unknown_name("case", name, valid) + ", or the FILE.py of a definition")


@functools.cache
def case_in_file(path: str) -> OpenCase:
    """The ``CASE`` of a file. Raises UserError if there is none or it is wrong, with the line."""
    if not Path(path).is_file():
        raise UserError(f"there is no file {path}")
    try:
        found = getattr(_imported(path), "CASE", None)
    except UserError:
        raise
    except Exception as error:
        own = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
        line = getattr(error, "lineno", None) or (own[-1] if own else None)
        where = f"{path}, line {line}" if line else path
        said = error.msg if isinstance(error, SyntaxError) else error
        raise UserError(f"{where}: {type(error).__name__}: {said}") from error
    if not isinstance(found, OpenCase):
        raise UserError(f"{path} has no CASE: CASE = OpenCase(...)")
    case = checked(replace(found, file=path))
    taken = next((own for own in all_cases() if case.id == own.id or case.name == own.name), None)
    if taken is not None:
        raise UserError(
            f"{path}: {taken.id} {taken.name} is one of the program's own cases; take another id and name"
        )
    return case


def _imported(path: str) -> ModuleType:
    """The module of a file, under a name that no other has."""
    name = f"flashperf_case_{hashlib.sha256(path.encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def checked(case: OpenCase) -> OpenCase:
    """The case itself. Raises UserError if what it names does not fit together."""
    paths = {case.baseline, case.optimised, *case.others}
    expected = case.expectation.mechanism
    for point in case.points:
        if unknown := sorted(set(point.paths) - paths):
            raise UserError(
                f"case {case.id}: {point.label} names the path {unknown[0]}, which it does not have"
            )
    if (case.headline, case.optimised) not in case.pairs():
        raise UserError(f"case {case.id}: {case.optimised} is not measured at its headline point")
    if expected not in (*MECHANISMS, ""):
        raise UserError(f"case {case.id}: {unknown_name('mechanism', expected, MECHANISMS)}")
    return case
