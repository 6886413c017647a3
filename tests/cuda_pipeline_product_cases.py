"""Cases of the products that only the pipeline has: few rows, an untuned tile, INT8 with SwiGLU and over-fused."""

from __future__ import annotations

import numpy as np
from cuda_checks import ROUNDOFF, CudaCase, Expected, unset, values
from cuda_pipeline_cases import TYPES, Made, case, exactly, near, silu, wide

from flashperf.cuda.pipeline_steps import as_matrix
from flashperf.mechanisms._products import packed_spec


def product_case(kernel: str, kind: str, m: int, k: int, n: int, swiglu: bool = False) -> CudaCase:
    def make() -> Made:
        x, y = values((m, k), kind), unset((m, n), kind)
        weights = [values((k, n), kind, 1 + i) for i in range(1 + swiglu)]
        left = wide(x, kind)
        products = [left @ wide(w, kind) for w in weights]
        sums = [k * ROUNDOFF["f32"] * (np.abs(left) @ np.abs(wide(w, kind))) for w in weights]
        reference, bound = products[0], sums[0]
        if swiglu:
            reference = silu(products[0]) * products[1]
            bound = 1.1 * sums[0] * np.abs(products[1]) + np.abs(silu(products[0])) * sums[1]
            bound = bound + 1e-5 * np.abs(reference)
        bound = bound + 2 * ROUNDOFF[kind] * np.abs(reference) + 1e-6
        return [x, *weights, y], {}, [Expected(y, kind, reference, bound)]

    return case("pipeline_products", kernel, f"m={m}-k={k}-n={n}", make)


def product_cases_of(kind: str) -> list[CudaCase]:
    cases = [
        product_case(f"gemm_{kind}_bad_tile", kind, *size) for size in ((17, 33, 18), (1, 1, 1), (3, 40, 64))
    ]
    for m, k, n in ((1, 65, 96), (1, 300, 8), (8, 67, 72), (3, 1, 16)):
        cases.append(product_case(f"gemm_{kind}_packed", kind, m, k, n))
        cases.append(product_case(f"gemm_swiglu_{kind}_packed", kind, m, k, n, swiglu=True))
    return cases


def integers(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).integers(-127, 128, shape).astype(np.int8)


def scales(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, n]).uniform(1e-3, 3e-3, n).astype(np.float32)


def int8_cases() -> list[CudaCase]:
    def product(m: int, k: int, n: int) -> Made:
        q, w, acc = integers((m, k)), integers((k, n), 1), unset((m, n), "i32")
        return [q, w, acc], {}, [exactly(acc, "i32", q.astype(np.int64) @ w.astype(np.int64))]

    def transposed() -> Made:
        w, sums = integers((44, 37)), np.zeros(37, np.int32)
        packed = np.zeros(packed_spec(44, 37, "i8").shape, np.int8)
        return [w, packed, sums], {}, [exactly(as_matrix(packed, 37, 44), "i8", w.T)]

    def copied() -> Made:
        w, packed = integers((20, 64)), np.zeros((2, 20, 32), np.int8)
        return [w, packed], {}, [exactly(as_matrix(packed, 20, 64), "i8", w)]

    size = (19, 35, 34)
    return [
        case("pipeline_int8", "gemm_i8_naive", "odd", lambda: product(*size)),
        case("pipeline_products", "gemm_i8_bad_tile", "odd", lambda: product(*size)),
        case("pipeline_int8", "pack_i8", "odd", transposed),
        case("pipeline_int8", "pack_w8", "whole", copied),
    ]


def weight_only_cases(kind: str) -> list[CudaCase]:
    def product(m: int, k: int, n: int, swiglu: bool) -> Made:
        x, y = values((m, k), kind), unset((m, n), kind)
        weights = [integers((k, n), 1 + i) for i in range(1 + swiglu)]
        columns = [scales(n, 1 + i) for i in range(1 + swiglu)]
        whole = [w * s.astype(np.float64) for w, s in zip(weights, columns, strict=True)]
        products = [wide(x, kind) @ w for w in whole]
        reference = silu(products[0]) * products[1] if swiglu else products[0]
        sums = [4 * k * ROUNDOFF["f32"] * (np.abs(wide(x, kind)) @ np.abs(w)) for w in whole]
        error = sums[0] if not swiglu else 1.1 * sums[0] * np.abs(products[1]) + np.abs(products[0]) * sums[1]
        bound = error + 2 * ROUNDOFF[kind] * np.abs(reference) + 1e-6
        operands = [part for pair in zip(weights, columns, strict=True) for part in pair]
        return [x, *operands, y], {}, [Expected(y, kind, reference, bound)]

    def widened() -> Made:
        w, scale, out = integers((5, 300)), scales(300), unset((5, 300), kind)
        return [w, scale, out], {}, [near(out, kind, w * scale.astype(np.float64), 1.1)]

    def rounded() -> Made:
        x, q = values((3, 50), kind), unset((3, 50), "i8")
        wanted = np.clip(np.rint(wide(x, kind) * np.float32(1 / np.float32(0.03))), -127, 127)
        return [x, q], {"scale": 0.03}, [Expected(q, "i8", wanted, 1.0)]

    cases = [
        case("pipeline_int8", f"dequantize_weight_{kind}", "odd", widened),
        case("pipeline_int8", f"quantize_rows_static_{kind}", "clipped", rounded),
    ]
    for size in ((1, 70, 40), (6, 33, 72)):
        label = "m={}-k={}-n={}".format(*size)
        for stem, swiglu in (("gemm_w8_packed", False), ("gemm_swiglu_w8_packed", True)):
            make = lambda size=size, swiglu=swiglu: product(*size, swiglu)  # noqa: E731
            cases.append(case("pipeline_products", f"{stem}_{kind}", label, make))
    return cases


def mlp_int8_cases(kind: str) -> list[CudaCase]:
    def swiglu(m: int, k: int, n: int) -> Made:
        q, gate, up = integers((m, k)), integers((n, k), 1), integers((n, k), 2)
        x_scale, g_scale, u_scale = scales(m), scales(n, 1), scales(n, 2)
        h, none = unset((m, n), kind), np.zeros(n, np.int32)
        g, u = (
            (q.astype(np.int64) @ w.T.astype(np.int64)) * x_scale[:, None].astype(np.float64) * s
            for w, s in ((gate, g_scale), (up, u_scale))
        )
        arrays = [q, gate, none, up, none, x_scale, g_scale, u_scale, h]
        return arrays, {}, [near(h, kind, silu(g) * u, 8.0)]

    def over(m: int, d: int, f: int) -> Made:
        x, y = values((m, d), kind), unset((m, d), kind)
        gate, up, down = integers((f, d), 1), integers((f, d), 2), integers((d, f), 3)
        weight_scales = scales(f, 1), scales(f, 2), scales(d, 3)
        q, x_scale = _quantized(wide(x, kind))
        g, u = (
            (q @ w.T.astype(np.float64)) * x_scale * s
            for w, s in zip((gate, up), weight_scales[:2], strict=True)
        )
        q_hidden, h_scale = _quantized(silu(g) * u)
        reference = (q_hidden @ down.T.astype(np.float64)) * h_scale * weight_scales[2]
        # A hidden value that lies between two integers may be rounded either way: some of f are off by one.
        bound = 4 * 127 * np.sqrt(f) * h_scale * weight_scales[2] + 4 * ROUNDOFF[kind] * np.abs(reference)
        none = np.zeros(1, np.int32)
        operands = [a for w, s in zip((gate, up, down), weight_scales, strict=True) for a in (w, none, s)]
        return [x, *operands, y], {"f": f}, [Expected(y, kind, reference, bound)]

    sizes = ((130, 64, 70), (3, 37, 5))
    cases = [
        case(
            "pipeline_int8",
            f"gemm_swiglu_i8_packed_{kind}",
            f"m={s[0]}-k={s[1]}-n={s[2]}",
            lambda s=s: swiglu(*s),
        )
        for s in sizes
    ]
    for s in ((9, 48, 104), (1, 4, 8)):
        label = f"m={s[0]}-d={s[1]}-f={s[2]}"
        cases.append(case("pipeline_int8", f"mlp_over_i8_{kind}", label, lambda s=s: over(*s)))
    return cases


def _quantized(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scale = np.maximum(np.abs(x).max(axis=1, keepdims=True), 1e-30) / 127
    return np.rint(x / scale), scale


def pipeline_product_cases() -> list[CudaCase]:
    """Every kernel of pipeline_products.cu and pipeline_int8.cu."""
    cases = int8_cases()
    for kind in TYPES:
        cases += [*product_cases_of(kind), *mlp_int8_cases(kind), *weight_only_cases(kind)]
    return cases
