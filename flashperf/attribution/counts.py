"""How often each of 2**k mixtures makes each call, as one sparse matrix: counted once, kept in the record."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

Call = Hashable  # names one kind of call: kernel variant, shapes, dtypes, layout, cache state


@dataclass(frozen=True, eq=False)
class CallCounts:
    """matrix (2**k, c): how often each mixture makes each of the c ``calls``."""

    calls: tuple[Any, ...]
    matrix: csr_array

    def __len__(self) -> int:
        """Mixtures."""
        return int(self.matrix.shape[0])

    def of(self, mask: int) -> dict[Any, float]:
        """The calls of one mixture."""
        begin, end = self.matrix.indptr[mask : mask + 2]
        columns, counts = self.matrix.indices[begin:end], self.matrix.data[begin:end]
        return {self.calls[column]: count for column, count in zip(columns, counts.tolist(), strict=True)}

    def cover(self) -> list[int]:
        """A few mixtures that together make every call: greedy set cover, the richest first."""
        makes = csr_array(
            (np.ones_like(self.matrix.data), self.matrix.indices, self.matrix.indptr), self.matrix.shape
        )
        missing = np.ones(len(self.calls))
        chosen = []
        while missing.any():
            best = int(np.argmax(makes @ missing))
            chosen.append(best)
            missing[makes.indices[makes.indptr[best] : makes.indptr[best + 1]]] = 0
        return chosen


def call_counts(counts: CallCounts | Mapping[int, Mapping[Any, float]], k: int) -> CallCounts:
    """Counts by mask and call as a matrix; calls that a mixture does not make may be left out.

    Raises ValueError for a mask of k switches without counts.
    """
    if isinstance(counts, CallCounts):
        if len(counts) < 1 << k:
            raise ValueError(f"no counts for mixture {len(counts):0{k}b}")
        return counts
    position: dict[Any, int] = {}
    rows, columns, values = [], [], []
    for mask in range(1 << k):
        if mask not in counts:
            raise ValueError(f"no counts for mixture {mask:0{k}b}")
        for call, count in counts[mask].items():
            if count:
                rows.append(mask)
                columns.append(position.setdefault(call, len(position)))
                values.append(float(count))
    return CallCounts(tuple(position), csr_array((values, (rows, columns)), shape=(1 << k, len(position))))
