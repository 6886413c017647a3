"""Roofs on disk: beside the other caches of the user, under a name that the environment decides."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from pathlib import Path

from flashperf.progress import ProgressSink
from flashperf.records import Environment
from flashperf.roofs.measuring import measure_roofs, measured_device
from flashperf.roofs.model import Ceiling, Roofs
from flashperf.store import RecordError, Records, RecordWriter, from_json, read_records, to_json


def kept_path(where: Environment) -> Path:
    """The file that holds the roofs of an environment; another device, compiler or quota has another one."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    key = json.dumps(to_json(where.comparable_key), sort_keys=True).encode()
    return base / "flashperf" / f"roofs-{hashlib.sha256(key).hexdigest()[:16]}.jsonl"


def write_roofs(writer: RecordWriter, roofs: Roofs) -> None:
    """Append roofs to a record: one line, with the value of every process."""
    writer.write("roofs", roofs=roofs)


def save_roofs(roofs: Roofs, path: Path) -> Path:
    """Write a record that holds roofs alone, in the place of an older one. Raises RecordError if it can't."""
    with RecordWriter(path, replace=True) as writer:
        write_roofs(writer, roofs)
    return path


def keep_roofs(roofs: Roofs, path: Path | None = None) -> tuple[Roofs, Path | None]:
    """Keep roofs, for their own environment unless in ``path``.

    Where that can't be done they have a note that says why, and there is no path.
    """
    try:
        return roofs, save_roofs(roofs, path or kept_path(roofs.environment))
    except RecordError as error:
        note = f"not kept: {error} (XDG_CACHE_HOME names the one of all caches)"
        return dataclasses.replace(roofs, notes=(*roofs.notes, note)), None


def read_roofs(records: Records) -> Roofs:
    """The roofs in a record. Raises RecordError if it holds none or they make no sense."""
    line = next(records.of("roofs"), None)
    if line is None:
        raise RecordError(f"{records.path} holds no roofs (flashperf roofs writes them)")
    roofs: Roofs = from_json(Roofs, line.get("roofs"))
    for ceiling in roofs.ceilings:
        _check(ceiling, records.path)
    return roofs


def _check(ceiling: Ceiling, path: Path) -> None:
    if not ceiling.per_process or not all(0 < value < float("inf") for value in ceiling.per_process):
        what = f"{ceiling.kind} {ceiling.name} {ceiling.how}"
        raise RecordError(f"{path}: {what} has values that are no rates: {ceiling.per_process}")


def load_roofs(path: Path) -> Roofs:
    """Read the roofs of a record. Raises RecordError, naming the file, if that fails."""
    return read_roofs(read_records(path))


def roofs_for(progress: ProgressSink | None = None, backend: str = "cpu") -> tuple[Roofs, Path | None, bool]:
    """The roofs of this machine, the file that keeps them, and whether they were measured just now.

    ``backend``: other than ``cpu``, those of the GPU. A kept file that can't be read is measured anew; where none can
    be written there is no path. Raises UserError for a GPU that isn't there.
    """
    path = kept_path(measured_device(backend))
    try:
        return load_roofs(path), path, False
    except RecordError:
        return *keep_roofs(measure_roofs(progress=progress, backend=backend), path), True
