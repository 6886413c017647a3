"""What the mechanisms built on a matrix product share: inputs, packed weights, tolerances."""

from __future__ import annotations

import math

import numpy as np

from flashperf import native
from flashperf.dtypes import UNIT_ROUNDOFF, aligned_empty, cast
from flashperf.records import Arrays, ArraySpec, Case, Tolerance

PANEL = 32  # columns of a packed panel


def product_inputs(case: Case, dtype: str, rows: str = "m") -> Arrays:
    """x [m, k] normal with outliers, w [k, n] normal / sqrt(k): products are of order 1. ``rows``: m's name."""
    rng = np.random.default_rng(case.seed)
    x = rng.standard_normal((case[rows], case["k"]))
    x.reshape(-1)[:: max(1, x.size // 7)] *= 4.0
    w = rng.standard_normal((case["k"], case["n"])) / math.sqrt(case["k"])
    return {"x": cast(x.astype(np.float32), dtype), "w": cast(w.astype(np.float32), dtype)}


def packed_spec(k: int, n: int, dtype: str) -> ArraySpec:
    """Shape of a weight [k, n] packed in panels: rows of bf16 go in pairs, those of i8 in fours."""
    panels = -(-n // PANEL)
    together = {"bf16": 2, "i8": 4}.get(dtype, 1)
    return ArraySpec((panels, -(-k // together), together * PANEL), dtype)


def weight_spec(case: Case, k: int, n: int, dtype: str) -> ArraySpec:
    """A weight [k, n] as a product reads it: packed in panels on a CPU, as it is stored elsewhere."""
    return packed_spec(k, n, dtype) if case.backend == "cpu" else ArraySpec((k, n), dtype)


def pack(w: np.ndarray, dtype: str) -> np.ndarray:
    """A float weight [k, n] of a short dtype name in panels, as its product wants it."""
    spec = packed_spec(w.shape[0], w.shape[1], dtype)
    packed = aligned_empty(spec.shape, dtype)
    native.prepare(f"pack_{dtype}", w, packed)()
    return packed


def pack_i8(w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """An INT8 weight [k, n] in panels, and the sums of its columns, i32 [n]."""
    packed, sums = (
        aligned_empty(packed_spec(w.shape[0], w.shape[1], "i8").shape, "i8"),
        aligned_empty((w.shape[1],), "i32"),
    )
    native.prepare("pack_i8", w, packed, sums)()
    return packed, sums


def product_tolerance(k: int, rounded: str, result: str) -> Tolerance:
    """For sums of k products of order 1 / sqrt(k), operands rounded to ``rounded``, the sum to ``result``.

    An operand's rounding moves a product by up to u, at random; the sum of k such errors has a deviation of about
    u, and 8 of those hold for every element, outliers included. A sum in f32 adds sqrt(k) roundings in series.
    """
    u, single, stored = UNIT_ROUNDOFF[rounded], UNIT_ROUNDOFF["f32"], UNIT_ROUNDOFF[result]
    absolute = 2 * (8 * (u if rounded != "f32" else single) + 4 * math.sqrt(k) * single)
    reason = f"twice 8 deviations of operands rounded to {rounded}, and {k} terms summed in f32"
    return Tolerance(2 * stored, absolute, reason)
