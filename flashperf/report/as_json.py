"""An explanation as plain JSON values: what ``--json`` prints and the page carries."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from flashperf.records import SCHEMA_VERSION, Explanation
from flashperf.report.words import words


def to_json(explanation: Explanation) -> dict[str, Any]:
    """Every field by its name in ``records.py``, with the schema version and the sentences.

    Times in seconds, sizes in bytes, ratios as Flash / Standard. An unbounded interval and a value that
    was not measured are null: JSON has no such numbers.
    """
    return {"schema_version": SCHEMA_VERSION, **_plain(explanation), "words": words(explanation)}


def _plain(value: Any) -> Any:
    """Dataclasses to objects, tuples to lists, infinite and missing numbers to null."""
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
