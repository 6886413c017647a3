"""Records on disk: JSON lines with a schema version, each flushed, so a killed run loses nothing.

The first line is the header (kind, schema, program version, command, time); every other line has a ``kind``
and its fields. Numbers that JSON has no word for (nan, inf) are written as strings and read back by their
type.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import sys
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

import flashperf
from flashperf.errors import UserError
from flashperf.records import SCHEMA_VERSION

PROGRAM = "flashperf"
_LONGEST_HEADER = 1 << 20  # bytes; a foreign file may be one line of a gigabyte


class RecordError(UserError):
    """A record that can't be written or read; the message names the file and the line."""


def to_json(value: Any) -> Any:
    """Dataclasses, mappings, sequences and NumPy values as ``json.dumps`` takes them; nan, inf as strings."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return to_json(value.tolist())
    if isinstance(value, list | tuple | set | frozenset):
        return [to_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"a {type(value).__name__} has no form in a record: {value!r}")


def from_json(kind: Any, data: Any) -> Any:
    """The inverse of ``to_json`` for a type: a dataclass or what its fields are made of.

    Raises RecordError if the data don't fit it. Unknown fields are ignored, so that a later minor addition
    to a type can still be read; missing ones take their default, or are an error where there is none.
    """
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _from_union(arguments, data)
    if dataclasses.is_dataclass(kind):
        return _from_fields(kind, data)
    if kind is float and not isinstance(data, bool) and isinstance(data, int | float | str):
        try:
            return float(data)
        except ValueError as error:
            raise RecordError(f"{data!r} is not a number") from error
    if isinstance(origin, type) and issubclass(origin, Mapping) and isinstance(data, dict):
        return {from_json(arguments[0], key): from_json(arguments[1], item) for key, item in data.items()}
    if origin in (tuple, list) and isinstance(data, list):
        return _from_items(origin, arguments, data)
    if kind is Any:
        return data
    if isinstance(kind, type) and isinstance(data, kind) and (kind is bool or not isinstance(data, bool)):
        return data
    raise RecordError(f"{json.dumps(data)[:60]} is no {getattr(kind, '__name__', kind)}")


def _from_union(options: tuple[Any, ...], data: Any) -> Any:
    if data is None and type(None) in options:
        return None
    problem = RecordError("no type fits")
    for option in options:
        if option is not type(None):
            try:
                return from_json(option, data)
            except RecordError as error:
                problem = error
    raise problem


def _from_items(origin: type, arguments: tuple[Any, ...], data: list[Any]) -> Any:
    if origin is tuple and arguments[-1:] != (...,):
        if len(arguments) != len(data):
            raise RecordError(f"{len(data)} values where {len(arguments)} belong")
        return tuple(from_json(kind, item) for kind, item in zip(arguments, data, strict=True))
    return origin(from_json(arguments[0], item) for item in data)


def _from_fields(kind: Any, data: Any) -> Any:
    if not isinstance(data, dict):
        raise RecordError(f"a {kind.__name__} is an object, not {json.dumps(data)[:60]}")
    hints = typing.get_type_hints(kind)
    values = {}
    for field in dataclasses.fields(kind):
        if field.name in data:
            try:
                values[field.name] = from_json(hints[field.name], data[field.name])
            except RecordError as error:
                raise RecordError(f"{kind.__name__}.{field.name}: {error}") from error
    try:
        return kind(**values)
    except (TypeError, ValueError) as error:
        raise RecordError(f"{kind.__name__}: {error}") from error


class RecordWriter:
    """Appends lines to a new record.

    Raises RecordError if the file exists (unless ``replace``) or can't be written.

    Each line is one write to a file opened for appending, so a process that is killed leaves whole lines.
    """

    def __init__(self, path: str | Path, replace: bool = False) -> None:
        self.path = Path(path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | (os.O_TRUNC if replace else os.O_EXCL)
        self._file: int | None = None
        try:
            if not self.path.parent.is_dir():
                self.path.parent.mkdir(parents=True)
            self._file = os.open(self.path, flags, 0o644)
        except OSError as error:
            if isinstance(error, FileExistsError) and self.path.is_file():
                raise RecordError(f"{self.path} exists already; choose another name") from error
            message = f"can't write {self.path}: {error.strerror}; choose another folder"
            raise RecordError(message) from error
        self.write(
            "header",
            schema=SCHEMA_VERSION,
            program=PROGRAM,
            version=flashperf.__version__,
            command=[Path(sys.argv[0]).name, *sys.argv[1:]],
            time=datetime.now(UTC).isoformat(timespec="seconds"),
        )

    def write(self, kind: str, **fields: Any) -> None:
        """Append one line; it is with the operating system when this returns."""
        if self._file is None:
            raise RecordError(f"{self.path} is closed")
        line = json.dumps(
            {"kind": kind} | {name: to_json(value) for name, value in fields.items()}, allow_nan=False
        )
        left = memoryview(line.encode() + b"\n")
        try:
            while left:
                left = left[os.write(self._file, left) :]
        except OSError as error:
            raise RecordError(
                f"can't write {self.path}: {error.strerror}; what was written before is kept"
            ) from error

    def close(self) -> None:
        """Close the file; writing to it after that is an error."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __enter__(self) -> RecordWriter:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


@dataclass(frozen=True)
class Records:
    """What a record holds. ``truncated``: the last line was cut off and is left out."""

    path: Path
    header: dict[str, Any]
    lines: tuple[dict[str, Any], ...]
    truncated: bool = False

    def of(self, kind: str) -> Iterator[dict[str, Any]]:
        """The lines of one kind, in their order."""
        return (line for line in self.lines if line["kind"] == kind)


def read_records(path: str | Path) -> Records:
    """Read a record.

    Raises RecordError, with file and line, if it is missing, empty, foreign, of a newer schema or corrupt;
    a last line that was cut off (a killed run) is tolerated and flagged.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            header = _header(path, file.readline(_LONGEST_HEADER))
            lines, truncated = _lines(path, file)
    except OSError as error:
        raise RecordError(f"can't read {path}: {error.strerror}") from error
    return Records(path, header, tuple(lines), truncated)


def _header(path: Path, line: bytes) -> dict[str, Any]:
    if not line.strip():
        raise RecordError(f"{path} is empty")
    header = _parsed(line)
    if header is None or header["kind"] != "header" or header.get("program") != PROGRAM:
        raise RecordError(f"{path} is not a record of flashperf: its first line is no header")
    schema = header.get("schema")
    if not isinstance(schema, int) or isinstance(schema, bool) or not 1 <= schema <= SCHEMA_VERSION:
        raise RecordError(
            f"{path}, line 1: schema {schema!r}; this flashperf reads schemas 1 to {SCHEMA_VERSION}"
        )
    return header


def _lines(path: Path, file: typing.BinaryIO) -> tuple[list[dict[str, Any]], bool]:
    lines: list[dict[str, Any]] = []
    for number, text in enumerate(file, start=2):
        line = _parsed(text)
        if line is not None:
            lines.append(line)
        elif text.endswith(b"\n"):
            raise RecordError(f"{path}, line {number}: not a line of a record (corrupt)")
        else:
            return lines, True  # only the last line of a file has no end
    return lines, False


def _parsed(text: bytes) -> dict[str, Any] | None:
    """The object of a line; None if it is none or has no kind."""
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):  # UnicodeDecodeError is a ValueError
        return None
    return line if isinstance(line, dict) and isinstance(line.get("kind"), str) else None
