"""The products that the pipeline launches on CUDA, in floats and in INT8.

A packed weight is memory of the packed shape that begins with the row-major weight (INT8: its transpose): that is
the layout the CUDA products read.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flashperf.cuda import overfusion, precision, quantization
from flashperf.cuda.launcher import ceil_div
from flashperf.cuda.pipeline_steps import Arrays, Builder, Step, as_matrix, i32, wide_suffix
from flashperf.emulator import Launch

_THREADS = 256
_FEW_ROWS = 8  # up to here a product is bound by reading its weight once: csrc/cuda/pipeline_products.cu
_MAX_SHARED_BYTES = 227 << 10  # of a block, on sm_90 and sm_100
_INT8_SHARED_BYTES = 4 * (8192 + 8192)  # stages x (A + B): csrc/cuda/gemm_mma.cuh


def _product(kind: str, x: Any, w: Any, y: Any) -> list[Step]:
    """x[m,k] w[k,n]: few rows read the weight once in strips, more rows go by tiles."""
    w = as_matrix(w, x.shape[1], y.shape[1])
    few = _few_launch("few", kind, x, (w,), y)
    return [few] if few else [Step("precision", precision.product(kind, x, w, y))]


def _few_launch(stem: str, kind: str, x: Any, weights: tuple[Any, ...], y: Any) -> Step | None:
    (m, k), n = x.shape, y.shape[1]
    rows, access_bytes = (1, 16) if m == 1 else (_FEW_ROWS, 8)
    wide = access_bytes // x.dtype.itemsize
    if m > _FEW_ROWS or n % wide:
        return None
    args = (x, *weights, y, *i32(m, k, n))
    grid = (ceil_div(n, 4 * wide),)
    return Step("pipeline_products", Launch(f"{stem}_{rows}_{kind}", grid, (_THREADS,), args))


def _swiglu_product(kind: str, x: Any, gate: Any, up: Any, h: Any) -> list[Step]:
    gate, up = (as_matrix(w, x.shape[1], h.shape[1]) for w in (gate, up))
    few = _few_launch("few_swiglu", kind, x, (gate, up), h)
    if few:
        return [few]
    return [Step("overfusion", overfusion.gate_up(kind, x, gate, up, h))]


def _per_element(module: str, kernel: str, tile: tuple[int, int], x: Any, w: Any, y: Any) -> list[Step]:
    """A product with an element of y per thread, in blocks of tile = (columns, rows)."""
    (m, k), n = x.shape, y.shape[1]
    grid = (ceil_div(n, tile[0]), ceil_div(m, tile[1]))
    return [Step(module, Launch(kernel, grid, tile, (x, w, y, *i32(m, k, n))))]


def _mlp_over(kind: str, arrays: Arrays, f: int) -> list[Step]:
    x, gate, up, down, y = arrays
    d = x.shape[1]
    weights = {"gate": as_matrix(gate, d, f), "up": as_matrix(up, d, f), "down": as_matrix(down, f, d)}
    made = overfusion.launches("over", kind, {"x": x, "y": y, **weights})
    return [Step("overfusion", launch) for launch in made]


def products(kind: str) -> dict[str, Builder]:
    """The products of one float type."""
    return {
        f"gemm_{kind}_packed": lambda a, s: _product(kind, *a),
        f"gemm_{kind}_blocked": lambda a, s: _product(kind, *a),
        f"gemm_{kind}_naive": lambda a, s: _per_element("precision", f"gemm_plain_{kind}", (32, 8), *a),
        f"gemm_{kind}_bad_tile": lambda a, s: _per_element(
            "pipeline_products", f"untuned_{kind}", (16, 16), *a
        ),
        f"gemm_swiglu_{kind}_packed": lambda a, s: _swiglu_product(kind, *a),
        f"mlp_over_{kind}": lambda a, s: _mlp_over(kind, a, int(s["f"])),
    }


# ---- INT8 ----


def _quantize_rows(kind: str, x: Any, q: Any, scale: Any) -> list[Step]:
    args = (x, q, scale, *i32(x.shape[1]))
    return [Step("quantization", Launch(f"quantize_dynamic_{kind}", (x.shape[0],), (_THREADS,), args))]


def _quantize_static(kind: str, x: Any, q: Any, scale: float) -> list[Step]:
    args = (x, q, np.int64(x.size), np.float32(scale))
    grid = (ceil_div(x.size, _THREADS),)
    return [Step("pipeline_int8", Launch(f"quantize_static_{kind}", grid, (_THREADS,), args))]


def _dequantize_weight(kind: str, w: Any, scale: Any, wide: Any) -> list[Step]:
    k, n = w.shape
    launch = Launch(
        f"dequantize_weight_{kind}", (k, ceil_div(n, _THREADS)), (_THREADS,), (w, scale, wide, *i32(n))
    )
    return [Step("pipeline_int8", launch)]


def _weight_only(stem: str, kind: str, arrays: Arrays) -> list[Step]:
    """x, then values and scale of one weight or two, y. Four rows of x per block."""
    x, *weights, y = arrays
    (m, k), n = x.shape, y.shape[1]
    if n % 8:
        raise ValueError(f"products with INT8 weights take multiples of 8 columns, not {n}")
    rows = 1 if m == 1 else 4
    weights = [w if w.ndim == 1 else as_matrix(w, k, n) for w in weights]
    grid = (ceil_div(n, 32), ceil_div(m, rows))
    launch = Launch(f"{stem}_{rows}_{kind}", grid, (_THREADS,), (x, *weights, y, *i32(m, k, n)))
    return [Step("pipeline_products", launch)]


def _dequantize(kind: str, arrays: Arrays) -> list[Step]:
    m, n = arrays[0].shape
    grid = (m, ceil_div(n, _THREADS))
    return [Step("quantization", Launch(f"dequantize_{kind}", grid, (_THREADS,), (*arrays, *i32(n))))]


def _int8_product(q: Any, packed: Any, args: tuple[Any, ...], epilogue: str = "") -> list[Step]:
    """On Tensor Cores, with the weight transposed; the last of ``args`` is y or the sums [m,n]."""
    w_t = as_matrix(packed, args[-1].shape[1], q.shape[1])
    return [Step("quantization", quantization.product("imma", q, w_t, args, epilogue))]


def _swiglu_int8(kind: str, arrays: Arrays) -> list[Step]:
    q, gate, _, up, _, x_scale, gate_scale, up_scale, h = arrays
    (m, k), n = q.shape, h.shape[1]
    weights = (as_matrix(gate, n, k), as_matrix(up, n, k))
    args = (q, *weights, x_scale, gate_scale, up_scale, h, *i32(m, k, n))
    name, grid = f"swiglu_int8_{kind}{wide_suffix(k)}", (ceil_div(n, 64), ceil_div(m, 128))
    return [Step("pipeline_int8", Launch(name, grid, (128,), args, _INT8_SHARED_BYTES))]


def _mlp_over_int8(kind: str, arrays: Arrays, f: int) -> list[Step]:
    x, gate, _, gate_scale, up, _, up_scale, down, _, down_scale, y = arrays
    m, d = x.shape
    shared_bytes = 8 * (5 * f + d)
    if d % 4 or f % 4 or shared_bytes > _MAX_SHARED_BYTES:
        raise ValueError(f"the over-fused INT8 MLP takes multiples of 4 that fit a block, not d={d} f={f}")
    weights = (as_matrix(gate, f, d), gate_scale, as_matrix(up, f, d), up_scale, as_matrix(down, d, f))
    args = (x, *weights, down_scale, y, *i32(m, d, f))
    launch = Launch(f"mlp_over_int8_{kind}", (ceil_div(m, 8),), (_THREADS,), args, shared_bytes)
    return [Step("pipeline_int8", launch)]


def _pack_int8(w: Any, packed: Any, column_sums: Any) -> list[Step]:
    """The transpose. The sums of columns correct unsigned products on a CPU; nothing reads them here."""
    k, n = w.shape
    grid = (ceil_div(n, 32), ceil_div(k, 32))
    args = (w, as_matrix(packed, n, k), *i32(k, n))
    return [Step("pipeline_int8", Launch("transpose_i8", grid, (32, 8), args))]


def int8_products(kind: str) -> dict[str, Builder]:
    """What stands around the INT8 products where activations are kept in ``kind``."""
    return {
        f"quantize_rows_static_{kind}": lambda a, s: _quantize_static(kind, a[0], a[1], s["scale"]),
        f"dequantize_weight_{kind}": lambda a, s: _dequantize_weight(kind, *a),
        f"gemm_w8_packed_{kind}": lambda a, s: _weight_only("weight_only", kind, a),
        f"gemm_swiglu_w8_packed_{kind}": lambda a, s: _weight_only("weight_only_swiglu", kind, a),
        f"quantize_rows_{kind}": lambda a, s: _quantize_rows(kind, *a),
        f"dequantize_{kind}": lambda a, s: _dequantize(kind, a),
        f"gemm_i8_packed_dequant_{kind}": lambda a, s: _int8_product(
            a[0], a[1], (a[3], a[4], a[5]), f"_dequantize_{kind}"
        ),
        f"gemm_swiglu_i8_packed_{kind}": lambda a, s: _swiglu_int8(kind, a),
        f"mlp_over_i8_{kind}": lambda a, s: _mlp_over_int8(kind, a, int(s["f"])),
    }


def _copy_int8(w: Any, packed: Any) -> list[Step]:
    grid = (ceil_div(w.size, _THREADS),)
    args = (w, packed, np.int64(w.size))
    return [Step("pipeline_int8", Launch("copy_i8", grid, (_THREADS,), args))]


def int8_only() -> dict[str, Builder]:
    """INT8 in and sums out, whatever the activations are kept in."""
    return {
        "pack_w8": lambda a, s: _copy_int8(*a),
        "pack_i8": lambda a, s: _pack_int8(*a),
        "gemm_i8_packed": lambda a, s: _int8_product(a[0], a[1], (a[3],)),
        "gemm_i8_naive": lambda a, s: _per_element("pipeline_int8", "naive_i8", (32, 8), *a),
        "gemm_i8_bad_tile": lambda a, s: _per_element("pipeline_products", "untuned_i8", (16, 16), *a),
    }
