"""Every kernel of the matrix-product family with inputs, float64 reference and error bound, for the tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from flashperf import dtypes

FLOATS = ("f32", "bf16", "f16")
#: Integer outputs must be equal; the sums of a float product may round at every step, in any order.
F32 = dtypes.UNIT_ROUNDOFF["f32"]


@dataclass
class Output:
    """What a kernel must write: float64 values, and how far each element may be off."""

    dtype: str
    reference: np.ndarray
    bound: np.ndarray | float = 0.0


@dataclass
class KernelCase:
    """One call of a kernel."""

    inputs: list[np.ndarray]
    outputs: list[Output]
    scalars: dict[str, float] = field(default_factory=dict)


def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, scale: float = 1.0) -> np.ndarray:
    """Normal values with an offset and an outlier, rounded to the type."""
    x = rng.standard_normal(shape) * scale + 0.1 * scale
    x.flat[rng.integers(x.size)] = 8.0 * scale
    return dtypes.cast(x.astype(np.float32), dtype)


def int8(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """The whole range, -128 included, with its extremes present: they saturate a careless kernel."""
    q = rng.integers(-128, 128, shape, dtype=np.int8)
    q.flat[0], q.flat[-1] = -128, 127
    return q


def packed(w: np.ndarray, group: int) -> np.ndarray:
    """The packed layout, written independently of the kernels: panels of 32 columns, groups of k per column."""
    k, n = w.shape
    full = np.zeros((-(-k // group) * group, -(-n // 32) * 32), dtype=w.dtype)
    full[:k, :n] = w
    panels = full.reshape(full.shape[0] // group, group, full.shape[1] // 32, 32)
    return np.ascontiguousarray(panels.transpose(2, 0, 3, 1)).reshape(
        full.shape[1] // 32, full.shape[0] // group, -1
    )


def group_of(dtype: str) -> int:
    """Elements of a column that share a 32-bit lane of the packed layout."""
    return {"bf16": 2, "i8": 4}.get(dtype, 1)


def rounding(reference: np.ndarray, dtype: str) -> np.ndarray:
    """One conversion to the type (and, for f16, its smallest step)."""
    return np.abs(reference) * dtypes.UNIT_ROUNDOFF[dtype] * 1.01 + (2.0**-25 if dtype == "f16" else 1e-37)


def product(x: np.ndarray, w: np.ndarray, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """x @ w in float64, and the most that summing k products in f32 can be off."""
    x, w = dtypes.widen(x, dtype), dtypes.widen(w, dtype)
    return x @ w, (x.shape[1] + 2) * F32 * (np.abs(x) @ np.abs(w))


def silu(x: np.ndarray) -> np.ndarray:
    """x * sigmoid(x) without overflow."""
    return x * np.exp(-np.logaddexp(0, -x))


def swiglu(
    g: np.ndarray, u: np.ndarray, g_error: np.ndarray, u_error: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """silu(g) * u and how the errors of both go through it; the slope of silu is at most 1.1."""
    out = silu(g) * u
    return out, 1.1 * g_error * np.abs(u) + (np.abs(silu(g)) + g_error) * u_error + 16 * F32 * np.abs(out)


def pack_case(dtype: str, m: int, k: int, n: int, rng: np.random.Generator) -> KernelCase:
    if dtype == "i8":
        w = int8(rng, (k, n))
        sums = w.astype(np.float64).sum(axis=0)
        return KernelCase([w], [Output("i8", packed(w, 4).astype(np.float64)), Output("i32", sums)])
    w = values(rng, (k, n), dtype)
    return KernelCase([w], [Output(dtype, dtypes.widen(packed(w, group_of(dtype)), dtype))])


def gemm_case(dtype: str, layout: str, m: int, k: int, n: int, rng: np.random.Generator) -> KernelCase:
    x, w = values(rng, (m, k), dtype), values(rng, (k, n), dtype, k**-0.5)
    reference, error = product(x, w, dtype)
    right = packed(w, group_of(dtype)) if layout == "packed" else w
    return KernelCase([x, right], [Output(dtype, reference, error + rounding(reference, dtype))])


def gemm_i8_case(layout: str, m: int, k: int, n: int, rng: np.random.Generator) -> KernelCase:
    q, w = int8(rng, (m, k)), int8(rng, (k, n))
    right = [packed(w, 4), w.sum(axis=0, dtype=np.int32)] if layout == "packed" else [w]
    return KernelCase([q, *right], [Output("i32", q.astype(np.float64) @ w.astype(np.float64))])


def scales(rng: np.random.Generator, count: int) -> np.ndarray:
    """Positive scales, one of them zero (an empty row)."""
    scale = rng.uniform(0.001, 0.02, count).astype(np.float32)
    scale[count // 2] = 0.0 if count > 2 else scale[count // 2]
    return scale


def dequant_case(dtype: str, fused: bool, m: int, k: int, n: int, rng: np.random.Generator) -> KernelCase:
    q, w, x_scale, w_scale = int8(rng, (m, k)), int8(rng, (k, n)), scales(rng, m), scales(rng, n)
    acc = q.astype(np.float64) @ w.astype(np.float64)
    reference = acc * np.outer(x_scale, w_scale).astype(np.float64)
    bound = np.abs(reference) * 4 * F32 + rounding(reference, dtype)
    left = [q, packed(w, 4), w.sum(axis=0, dtype=np.int32)] if fused else [acc.astype(np.int32)]
    return KernelCase([*left, x_scale, w_scale], [Output(dtype, reference, bound)])


def quantize_case(dtype: str, static: bool, m: int, k: int, n: int, rng: np.random.Generator) -> KernelCase:
    x = values(rng, (m, k), dtype)
    x[m // 2] = 0 if m > 1 else x[m // 2]
    wide = dtypes.widen(x, dtype).astype(np.float32)
    if static:
        inverse = np.float32(1) / np.float32(0.02)
        q = np.clip(np.rint(wide * inverse), -127, 127)
        return KernelCase([x], [Output("i8", q.astype(np.float64))], {"scale": 0.02})
    top = np.abs(wide).max(axis=1)
    inverse = np.divide(np.float32(127), top, out=np.zeros_like(top), where=top > 0)
    scale = (top / np.float32(127)).astype(np.float64)
    q = np.rint(wide * inverse[:, None]).astype(np.float64)
    return KernelCase([x], [Output("i8", q), Output("f32", scale, scale * 2 * F32)])


def swiglu_case(dtype: str, layout: str, m: int, k: int, n: int, rng: np.random.Generator) -> KernelCase:
    x = values(rng, (m, k), dtype)
    gate, up = (values(rng, (k, n), dtype, k**-0.5) for _ in range(2))
    (g, g_error), (u, u_error) = product(x, gate, dtype), product(x, up, dtype)
    reference, error = swiglu(g, u, g_error, u_error)
    right = [packed(w, group_of(dtype)) if layout == "packed" else w for w in (gate, up)]
    return KernelCase([x, *right], [Output(dtype, reference, error + rounding(reference, dtype))])


def swiglu_i8_case(dtype: str, m: int, k: int, n: int, rng: np.random.Generator) -> KernelCase:
    q, gate, up = int8(rng, (m, k)), int8(rng, (k, n)), int8(rng, (k, n))
    x_scale, gate_scale, up_scale = scales(rng, m), scales(rng, n), scales(rng, n)
    g = q.astype(np.float64) @ gate * np.outer(x_scale, gate_scale)
    u = q.astype(np.float64) @ up * np.outer(x_scale, up_scale)
    reference, error = swiglu(g, u, 4 * F32 * np.abs(g), 4 * F32 * np.abs(u))
    right = [a for w in (gate, up) for a in (packed(w, 4), w.sum(axis=0, dtype=np.int32))]
    inputs = [q, *right, x_scale, gate_scale, up_scale]
    return KernelCase(inputs, [Output(dtype, reference, error + rounding(reference, dtype))])


def mlp_case(dtype: str, m: int, d: int, f: int, rng: np.random.Generator) -> KernelCase:
    x = values(rng, (m, d), dtype)
    gate, up = (values(rng, (d, f), dtype, d**-0.5) for _ in range(2))
    down = values(rng, (f, d), dtype, f**-0.5)
    (g, g_error), (u, u_error) = product(x, gate, dtype), product(x, up, dtype)
    hidden, error = swiglu(g, u, g_error, u_error)
    wide = dtypes.widen(down, dtype)
    reference = hidden @ wide
    error = (error + rounding(hidden, dtype) + f * F32 * np.abs(hidden)) @ np.abs(wide) * 1.02
    inputs = [x, *(packed(w, group_of(dtype)) for w in (gate, up, down))]
    outputs = [Output(dtype, reference, error + rounding(reference, dtype))]
    return KernelCase(inputs, outputs, {"f": f})  # only f/32 occurs in the shapes


def mlp_i8_case(dtype: str, m: int, d: int, f: int, rng: np.random.Generator) -> KernelCase:
    x = values(rng, (m, d), dtype)
    wide = dtypes.widen(x, dtype).astype(np.float32)
    gate, up, down = int8(rng, (d, f)), int8(rng, (d, f)), int8(rng, (f, d))
    gate_scale, up_scale, down_scale = scales(rng, f) / d, scales(rng, f) / d, scales(rng, d)
    top = np.abs(wide).max(axis=1, keepdims=True)
    q, x_scale = np.rint(wide * (np.float32(127) / top)).astype(np.float64), top.astype(np.float64) / 127
    hidden = silu(q @ gate * x_scale * gate_scale) * (q @ up * x_scale * up_scale)
    stored = dtypes.widen(dtypes.cast(hidden.astype(np.float32), dtype), dtype)
    h_top = np.abs(stored).max(axis=1, keepdims=True)
    h_scale = np.where(h_top > 0, h_top / 127, 0)
    reference = (
        np.rint(stored / np.where(h_top > 0, h_scale, 1)) @ down.astype(np.float64) * h_scale * down_scale
    )
    # An element of the hidden row that lies near a tie may round either way: one step of the row's scale.
    steps = 2.0 + 127 * 2 * dtypes.UNIT_ROUNDOFF[dtype]
    near_ties = h_scale * steps * np.sqrt(f) * 128 * down_scale
    right = [
        a
        for w, s in ((gate, gate_scale), (up, up_scale), (down, down_scale))
        for a in (packed(w, 4), w.sum(axis=0, dtype=np.int32), s.astype(np.float32))
    ]
    return KernelCase([x, *right], [Output(dtype, reference, near_ties + rounding(reference, dtype))])


def cast_case(source: str, target: str, m: int, k: int, n: int, rng: np.random.Generator) -> KernelCase:
    x = values(rng, (m * n,), source)
    wide = dtypes.widen(x, source)
    exact = dtypes.widen(dtypes.cast(wide.astype(np.float32), target), target)
    return KernelCase([x], [Output(target, exact)])


def scale_add_case(m: int, k: int, n: int, rng: np.random.Generator) -> KernelCase:
    x, y = values(rng, (m * n,), "f32"), values(rng, (m * n,), "f32")
    reference = 0.75 * x.astype(np.float64) + y
    bound = 3 * F32 * (np.abs(x) + np.abs(y))
    return KernelCase([x, y], [Output("f32", reference, bound)], {"alpha": 0.75})


Builder = Callable[[int, int, int, np.random.Generator], KernelCase]


def _bind(function: Callable[..., KernelCase], *head: object) -> Builder:
    return lambda m, k, n, rng: function(*head, m, k, n, rng)


KERNELS: dict[str, Builder] = {"scale_add_f32": _bind(scale_add_case)}
for _a, _b in (("f32", "bf16"), ("bf16", "f32"), ("f32", "f16"), ("f16", "f32")):
    KERNELS[f"cast_{_a}_{_b}"] = _bind(cast_case, _a, _b)
for _t in (*FLOATS, "i8"):
    KERNELS[f"pack_{_t}"] = _bind(pack_case, _t)
for _layout in ("packed", "bad_tile", "naive"):
    KERNELS[f"gemm_i8_{_layout}"] = _bind(gemm_i8_case, _layout)
for _t in FLOATS:
    for _layout in ("packed", "blocked", "bad_tile", "naive"):
        KERNELS[f"gemm_{_t}_{_layout}"] = _bind(gemm_case, _t, _layout)
    KERNELS[f"gemm_swiglu_{_t}_packed"] = _bind(swiglu_case, _t, "packed")
    KERNELS[f"gemm_swiglu_{_t}_blocked"] = _bind(swiglu_case, _t, "blocked")
    KERNELS[f"gemm_swiglu_i8_packed_{_t}"] = _bind(swiglu_i8_case, _t)
    KERNELS[f"gemm_i8_packed_dequant_{_t}"] = _bind(dequant_case, _t, True)
    KERNELS[f"dequantize_{_t}"] = _bind(dequant_case, _t, False)
    KERNELS[f"quantize_rows_{_t}"] = _bind(quantize_case, _t, False)
    KERNELS[f"quantize_rows_static_{_t}"] = _bind(quantize_case, _t, True)
    KERNELS[f"mlp_over_{_t}"] = _bind(mlp_case, _t)
    KERNELS[f"mlp_over_i8_{_t}"] = _bind(mlp_i8_case, _t)
