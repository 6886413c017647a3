"""Whether a mixture of a user's factory computes what its Standard computes; one that doesn't is not timed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from flashperf.comparing.arrays import flatten, is_array, to_numpy
from flashperf.dtypes import widen
from flashperf.errors import UserError

#: Largest norm of the difference over the norm of Standard's result. Low precision stays below (bf16 and INT8 products
#: come to a few percent); a missing term or a wrong order does not.
LIMIT = 0.1


class SameResult:
    """Compares results with the first one given, Standard's: the floating arrays in it, joined in their order.

    However they are split into arrays: a batch in one piece or in several is the same result. Results without such
    an array are not compared: ``compared`` is False.
    """

    def __init__(self, standard: Any) -> None:
        self._expected = _joined(standard)
        self._norm = float(np.linalg.norm(self._expected))

    @property
    def compared(self) -> bool:
        """Whether Standard returned anything to compare with."""
        return self._expected.size > 0

    def check(self, result: Any, mixture: str) -> None:
        """Raises UserError, naming the mixture and by how much it differs."""
        if not self.compared:
            return
        values = _joined(result)
        if values.size != self._expected.size:
            wrong = f"has {values.size} values, Standard's {self._expected.size}"
        elif not np.isfinite(values).all():
            wrong = "holds NaN or infinite values"
        else:
            apart = float(np.linalg.norm(values - self._expected))
            if apart <= LIMIT * self._norm:
                return
            share = apart / self._norm if self._norm else math.inf
            wrong = f"differs from Standard's by {share:.1%} of its norm (limit {LIMIT:.0%})"
        raise UserError(
            f"the result for {mixture} {wrong}, so it is not timed; both must do the same work on the same inputs, "
            "and a callable whose results can't be compared returns None"
        )


def _joined(result: Any) -> np.ndarray:
    """The values of all floating arrays as float64, shape (values,)."""
    found = [np.empty(0)]
    for array in flatten(result).values():
        if is_array(array):
            values, name = to_numpy(array)
            if name in ("f64", "f32", "f16", "bf16"):
                found.append(widen(values, name).reshape(-1))
    return np.concatenate(found).astype(np.float64, copy=False)
