"""Cases of fusion and attention."""

from __future__ import annotations

from typing import Any

import numpy as np
from cuda_checks import ROUNDOFF, Built, CudaCase, Expected, unset, values

from flashperf import dtypes
from flashperf.cuda import attention, fusion

# ---- row operators ---------------------------------------------------------------------------------------


def _gelu(x: np.ndarray) -> np.ndarray:
    from scipy.special import erf

    return 0.5 * x * (1 + erf(x / np.sqrt(2)))


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def fusion_case(variant: str, op: str, dtype: str, rows: int, cols: int) -> CudaCase:
    def build() -> Built:
        names = {
            "bias_gelu": {"x": (rows, cols), "bias": (cols,)},
            "swiglu": {"gate": (rows, cols), "up": (rows, cols)},
            "softmax": {"x": (rows, cols)},
            "residual_rmsnorm": {"x": (rows, cols), "delta": (rows, cols), "weight": (cols,)},
        }[op]
        arrays: dict[str, Any] = {
            name: values(shape, dtype, i) for i, (name, shape) in enumerate(names.items())
        }
        wide = {name: dtypes.widen(array, dtype) for name, array in arrays.items()}
        y = arrays["y"] = unset((rows, cols), dtype)
        arrays |= fusion.scratch(op, variant, dtype, rows, cols)
        u = ROUNDOFF[dtype]
        # Each pass rounds; softmax's exponents are the worst: exp(x - peak) turns an absolute error of
        # u |x - peak| into a relative one. Fused there is one rounding, of the result.
        steps = 1.0 if variant == "fused" else {"softmax": 24.0, "residual_rmsnorm": 5.0}.get(op, 3.0)
        extra = []
        if op == "bias_gelu":
            reference = _gelu(wide["x"] + wide["bias"])
        elif op == "swiglu":
            reference = wide["gate"] / (1 + np.exp(-wide["gate"])) * wide["up"]
        elif op == "softmax":
            reference = _softmax(wide["x"])
        else:
            total = wide["x"] + wide["delta"]
            mean = (total**2).mean(axis=1, keepdims=True)
            reference = total / np.sqrt(mean + fusion.EPSILON) * wide["weight"]
            steps += 2.0  # the sum that the norm is taken of is itself rounded to the type
            arrays["total"] = unset((rows, cols), dtype)
            extra = [Expected(arrays["total"], dtype, total, u * np.abs(total))]
        bound = steps * u * np.abs(reference) + 1e-6 + (0.0 if variant == "fused" else 4 * u)
        launches = fusion.launches(variant, op, dtype, arrays)
        return launches, [Expected(y, dtype, reference, bound), *extra]

    return CudaCase("fusion", f"{variant}/{op}/{dtype}/rows={rows}-cols={cols}", build)


# ---- attention -------------------------------------------------------------------------------------------


def _attend(q: np.ndarray, k: np.ndarray, v: np.ndarray, seen: np.ndarray, slot: np.ndarray) -> np.ndarray:
    """y[m,heads,e] in float64; seen[m,t]. A query that sees nothing gives zeros."""
    y = np.zeros(q.shape)
    for i in np.flatnonzero(seen.any(axis=1)):
        keys, rows = k[slot[i]][:, seen[i]], v[slot[i]][:, seen[i]]  # [heads, seen, e]
        scores = np.einsum("he,hte->ht", q[i], keys) * q.shape[2] ** -0.5
        y[i] = np.einsum("ht,hte->he", _softmax(scores), rows)
    return y


def attention_case(variant: str, dtype: str, m: int, heads: int, e: int, t: int, window: int = 5) -> CudaCase:
    """Queries of three slots, one of them invalid, at positions that end each run in the middle of a tile."""

    def build() -> Built:
        rng = np.random.default_rng([m, heads, e, t])
        q = values((m, heads, e), dtype)
        k, v = values((2, heads, t, e), dtype, 1), values((2, heads, t, e), dtype, 2)
        slot = np.sort(rng.integers(0, 2, m)).astype(np.int32)
        position = np.minimum(np.arange(m) + rng.integers(0, 3), t - 1).astype(np.int32)
        if m > 2:
            slot[1], position[2] = 7, -1
        if m > 20:
            slot[18:21] = (1, 0, 1)  # runs of one query
        valid = (slot < 2) & (position >= 0)
        y = unset((m, heads, e), dtype)
        arrays: dict[str, Any] = {
            "q": q,
            "k": k,
            "v": v,
            "slot": slot,
            "position": position,
            "y": y,
        }
        limit = window if variant.startswith("window") else 0
        arrays |= attention.scratch(variant, arrays, window)
        seen = np.isfinite(attention.causal_window_mask(position, t, limit)) & valid[:, None]
        wide = [dtypes.widen(array, dtype) for array in (q, k, v)]
        u = ROUNDOFF[dtype]
        # The weights are rounded to the type before the second product (16-bit), the result once more.
        scores = np.abs(wide[0]).max() * np.abs(wide[1]).max() * e**0.5
        bound = (2 * u + 4 * (e + 8 + scores) * ROUNDOFF["f32"]) * np.abs(wide[2]).max()
        launches = attention.launches(variant, dtype, arrays, scale=e**-0.5, window=window)
        return launches, [Expected(y, dtype, _attend(*wide, seen, slot), bound)]

    label = f"{variant}/{dtype}/m={m}-heads={heads}-e={e}-t={t}"
    return CudaCase("attention", label, build)


def attention_cases() -> list[CudaCase]:
    sizes = ((40, 2, 16, 50), (70, 1, 64, 150), (3, 2, 80, 9), (1, 1, 1, 1), (9, 1, 20, 70), (66, 1, 128, 66))
    return [
        attention_case(variant, dtype, *size)
        for variant in attention.VARIANTS
        for dtype in ("f32", "f16", "bf16")
        for size in sizes
    ]


def row_cases() -> list[CudaCase]:
    cases = []
    for op in fusion.OPERATORS:
        for dtype in ("f32", "f16", "bf16"):
            for variant in fusion.VARIANTS:
                cases += [
                    fusion_case(variant, op, dtype, rows, cols)
                    for rows, cols in ((3, 96), (5, 77), (1, 1), (2, 1544))
                ]
    return cases
