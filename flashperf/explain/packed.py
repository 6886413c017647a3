"""Counts of calls as a line of a record."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from flashperf.attribution import CallCounts


def pack_counts(counts: CallCounts) -> dict[str, Any]:
    """Keys and number of mixtures as they are; counts as zlib of i32: where rows end, columns, counts."""
    matrix = counts.matrix.sorted_indices()
    parts = (np.diff(matrix.indptr), matrix.indices, matrix.data)
    flat = np.concatenate([np.asarray(part, "<i4") for part in parts])
    packed = base64.b85encode(zlib.compress(flat.tobytes(), 6)).decode()
    return {"keys": list(counts.calls), "mixtures": len(counts), "counts_zlib": packed}


def unpack_counts(packed: Mapping[str, Any]) -> CallCounts:
    """The inverse of ``pack_counts``. Raises ValueError, zlib.error or KeyError for anything else."""
    keys, mixtures = packed["keys"], packed["mixtures"]
    flat = np.frombuffer(zlib.decompress(base64.b85decode(packed["counts_zlib"])), "<i4")
    ends = np.append(0, np.cumsum(flat[:mixtures]))
    columns, counts = flat[mixtures:].reshape(2, -1)
    matrix = csr_array((counts.astype(float), columns, ends), shape=(mixtures, len(keys)))
    matrix.check_format()
    return CallCounts(tuple(keys), matrix)
