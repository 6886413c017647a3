"""Cases of precision, tiling, quantization and overfusion: products and what stands around them."""

from __future__ import annotations

from typing import Any

import numpy as np
from cuda_checks import ROUNDOFF, Built, CudaCase, Expected, unset, values

from flashperf import dtypes
from flashperf.cuda import overfusion, precision, quantization, tiling

# ---- products --------------------------------------------------------------------------------------------


def product_bound(x: np.ndarray, w: np.ndarray, operand_roundoff: float, result: str) -> np.ndarray:
    magnitude = np.abs(x) @ np.abs(w)
    sums = (x.shape[1] + 2) * ROUNDOFF["f32"] + 2 * operand_roundoff
    return sums * magnitude + ROUNDOFF[result] * np.abs(x @ w) * 1.01 + 1e-30


def precision_case(variant: str, dtype: str, m: int, k: int, n: int) -> CudaCase:
    def build() -> Built:
        x, w, y = values((m, k), dtype), values((k, n), dtype, 1), unset((m, n), dtype)
        arrays: dict[str, Any] = {"x": x, "w": w, "y": y}
        arrays |= precision.scratch(variant, {"x": x, "w": w}, {"y": y})
        wide_x, wide_w = dtypes.widen(x, dtype), dtypes.widen(w, dtype)
        rounded = {"tf32": ROUNDOFF["tf32"], "cast_churn": ROUNDOFF["bf16"]}.get(variant, 0.0)
        bound = product_bound(wide_x, wide_w, rounded, "bf16" if variant == "cast_churn" else dtype)
        return precision.launches(variant, dtype, arrays), [Expected(y, dtype, wide_x @ wide_w, bound)]

    return CudaCase("precision", f"{variant}/{dtype}/m={m}-k={k}-n={n}", build)


def cast_case(source: str, target: str, size: int) -> CudaCase:
    def build() -> Built:
        x, y = values((size,), source), unset((size,), target)
        reference = dtypes.widen(dtypes.cast(dtypes.widen(x, source).astype(np.float32), target), target)
        return [precision.cast(source, target, x, y)], [Expected(y, target, reference, 0.0)]

    return CudaCase("precision", f"cast_{source}_{target}/n={size}", build)


def tiling_case(variant: str, m: int, k: int, n: int) -> CudaCase:
    def build() -> Built:
        x, w, y = values((m, k), "f32"), values((k, n), "f32", 1), unset((m, n), "f32")
        wide_x, wide_w = x.astype(np.float64), w.astype(np.float64)
        expected = Expected(y, "f32", wide_x @ wide_w, product_bound(wide_x, wide_w, 0.0, "f32"))
        return tiling.launches(variant, {"x": x, "w": w, "y": y}), [expected]

    return CudaCase("tiling", f"{variant}/m={m}-k={k}-n={n}", build)


def quantization_case(variant: str, dtype: str, m: int, k: int, n: int) -> CudaCase:
    def build() -> Built:
        rng = np.random.default_rng([m, k, n])
        x, y = values((m, k), dtype), unset((m, n), dtype)
        if m > 1:
            x[1] = 0  # a row without a largest magnitude
        w = rng.integers(-127, 128, (k, n)).astype(np.int8)
        w_scale = (rng.random(n) + 0.5).astype(np.float32) / 127
        arrays: dict[str, Any] = {"x": x, "w_scale": w_scale, "y": y}
        arrays |= quantization.scratch(variant, x, w)
        wide = dtypes.widen(x, dtype)
        peak = np.abs(wide).max(axis=1)
        static = 4.0 / 127  # smaller than the outlier: it saturates
        scale = np.full(m, static) if "static" in variant else np.where(peak > 0, peak / 127, 1.0)
        q, x_scale = arrays["q"], arrays["x_scale"]

        def sums() -> np.ndarray:
            return q.astype(np.float64) @ w.astype(np.float64)

        def scaled() -> np.ndarray:
            return sums() * x_scale.astype(np.float64)[:, None] * w_scale.astype(np.float64)

        # At a tie rounding may go either way: q is half a step from x / scale, or a little more.
        exact = np.clip(wide / scale[:, None], -127, 127)
        expected = [
            Expected(x_scale, "f32", scale, 2 * ROUNDOFF["f32"] * scale),
            Expected(q, "i8", exact, 0.5 + 1e-4),
            Expected(y, dtype, scaled, 1e-30, 1.01 * ROUNDOFF[dtype] + 4 * ROUNDOFF["f32"]),
        ]
        if "acc" in arrays:
            expected.append(Expected(arrays["acc"], "i32", sums, 0.0))
        return quantization.launches(variant, dtype, arrays, static), expected

    return CudaCase("quantization", f"{variant}/{dtype}/m={m}-k={k}-n={n}", build)


def overfusion_case(variant: str, dtype: str, m: int, d: int, f: int) -> CudaCase:
    def build() -> Built:
        shapes = {"x": (m, d), "gate": (d, f), "up": (d, f), "down": (f, d)}
        arrays: dict[str, Any] = {
            name: values(shape, dtype, i) for i, (name, shape) in enumerate(shapes.items())
        }
        x, gate, up, down = (dtypes.widen(arrays[name], dtype) for name in shapes)
        y = arrays["y"] = unset((m, d), dtype)
        arrays |= overfusion.scratch(variant, arrays)
        g, u = x @ gate, x @ up
        hidden = g / (1 + np.exp(-np.clip(g, -80, None))) * u
        # silu(g) u with each factor off by its product's error and three roundings, then the last product.
        error_g, error_u = (product_bound(x, w, 0.0, dtype) for w in (gate, up))
        error = 1.1 * error_g * np.abs(u) + np.abs(g) * error_u + error_g * error_u
        error += 3 * ROUNDOFF[dtype] * np.abs(hidden) + 1e-6
        bound = error @ np.abs(down) + product_bound(hidden, down, 0.0, dtype)
        return overfusion.launches(variant, dtype, arrays), [Expected(y, dtype, hidden @ down, bound)]

    return CudaCase("overfusion", f"{variant}/{dtype}/m={m}-d={d}-f={f}", build)


#: Aligned rows with partial tiles, unaligned rows, one element, more than one tile each way.
PRODUCT_SIZES = ((24, 40, 48), (33, 21, 50), (1, 1, 1), (130, 70, 129))


def product_cases() -> list[CudaCase]:
    cases = []
    for m, k, n in PRODUCT_SIZES:
        for variant in ("f32", "tf32", "cast_churn"):
            cases.append(precision_case(variant, "f32", m, k, n))
        for dtype in ("f32", "f16", "bf16"):
            cases.append(precision_case("plain", dtype, m, k, n))
        for dtype in ("f16", "bf16"):
            cases.append(precision_case(dtype, dtype, m, k, n))
        cases += [tiling_case(variant, m, k, n) for variant in tiling.VARIANTS]
        for variant in quantization.VARIANTS:
            for dtype in ("f32", "f16", "bf16"):
                if dtype == "f32" or (m, k, n) != PRODUCT_SIZES[-1]:
                    cases.append(quantization_case(variant, dtype, m, k, n))
    cases += [precision_case(f"wmma_{dtype}", dtype, 32, 48, 144) for dtype in ("f16", "bf16")]
    cases += [precision_case(variant, "f32", 128, 128, 256) for variant in ("f32", "tf32")]
    cases += [
        quantization_case("int8_dynamic", "f32", 128, 320, 128),
        precision_case("bf16", "bf16", 128, 256, 128),
    ]
    cases += [quantization_case("int8_dynamic_fused", dtype, 40, 64, 48) for dtype in ("f32", "f16", "bf16")]
    pairs = (("f32", "f16"), ("f16", "f32"), ("f32", "bf16"), ("bf16", "f32"))
    cases += [cast_case(source, target, size) for source, target in pairs for size in (1, 2, 1030)]
    for variant in overfusion.VARIANTS:
        for dtype in ("f32", "f16", "bf16"):
            for m, d, f in ((18, 32, 80), (5, 16, 160), (130, 48, 112), (7, 5, 9)):
                if not overfusion.why_not(variant, dtype, d, f):
                    cases.append(overfusion_case(variant, dtype, m, d, f))
    return cases
