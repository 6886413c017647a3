"""Finds the cases: every module of ``flashperf/cases/definitions`` with a ``CASE``."""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re

from flashperf.cases import definitions
from flashperf.cases.definition import OpenCase
from flashperf.errors import UserError
from flashperf.suggest import unknown_name


@functools.cache
def all_cases() -> tuple[OpenCase, ...]:
    """Every case, by id. Raises ValueError if two share an id or a name."""
    names = [found.name for found in pkgutil.iter_modules(definitions.__path__)]
    cases = [importlib.import_module(f"{definitions.__name__}.{name}").CASE for name in names]
    for what in ("id", "name"):
        values = [getattr(case, what) for case in cases]
        twice = sorted({value for value in values if values.count(value) > 1})
        if twice:
            raise ValueError(f"two cases have the {what} {', '.join(twice)}")
    return tuple(sorted(cases, key=lambda case: _natural(case.id)))


def _natural(text: str) -> list[int | str]:
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", text)]


def case_named(name: str) -> OpenCase:
    """A case by its id (``A4``, any case) or its name. Raises UserError with the nearest ones."""
    for case in all_cases():
        if name.lower() in (case.id.lower(), case.name):
            return case
    valid = [text for case in all_cases() for text in (case.id, case.name)]
    raise UserError(unknown_name("case", name, valid))
