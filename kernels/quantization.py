"""quantization: int8 products with a scale per row of activations (per token) and per column of weights.

Around the product stand the largest magnitude of each row, the rounding, and the way back from int32 to floats; each a
kernel of its own, or the last in the product's epilogue. ``weight_only`` keeps activations and rounds only weights:
fewer bytes, no faster units.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
import triton
import triton.language as tl

from flashperf.kernels import _launch
from flashperf.kernels._elementwise import LONGEST_ROW, row_blocks
from flashperf.kernels._launch import Launch, TritonCall, block_of, ceil_div
from flashperf.kernels._products import BLOCKS, ROW_BLOCKS, dot, grouped_block, product, widened
from flashperf.mechanisms.quantization import quantize_columns, static_scale
from flashperf.records import Arrays, Case

VARIANTS = ("f32", "int8_dynamic", "int8_dynamic_fused", "int8_static", "weight_only")

#: Rows, columns, depth: int8 operands are half as wide as 16-bit ones, so a block is twice as deep.
_BLOCKS = BLOCKS | {"BLOCK_K": 128}
_ROWS = ROW_BLOCKS | {"BLOCK_K": 128}
#: x is rounded to bf16 and w widened on the way to the product, in registers.
_MIXED_BLOCKS = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 32, "GROUP": 8, "num_warps": 8, "num_stages": 3}
_MIXED_ROWS = ROW_BLOCKS | {"BLOCK_K": 64}


@triton.jit
def round_to_even(x):
    """f32 -> int8, nearest, ties to even, kept to -127..127: adding 1.5 * 2^23 leaves no bits for a fraction."""
    kept = tl.minimum(tl.maximum(x, -127.0), 127.0)
    return ((kept + 12582912.0) - 12582912.0).to(tl.int8)


@triton.jit
def quantize_rows(x, q, x_scale, k, BLOCK: tl.constexpr):
    """x[m,k] -> q[m,k] int8, x_scale[m] = largest magnitude / 127 (1 for a row of zeros)."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < k
    value = tl.load(x + row * k + column, mask=inside, other=0.0).to(tl.float32)
    peak = tl.max(tl.abs(value), 0)
    scale = tl.where(peak > 0.0, peak / 127.0, 1.0)
    tl.store(q + row * k + column, round_to_even(value / scale), mask=inside)
    tl.store(x_scale + row, scale)


@triton.jit
def quantize_known(x, q, n, scale, BLOCK: tl.constexpr):
    """x[n] -> q[n] int8 by one scale for all: no reduction, no second look."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(q + at, round_to_even(value / scale), mask=inside)


@triton.jit
def dequantize(total, x_scale, w_scale, y, n, BLOCK: tl.constexpr):
    """total[m,n] int32, x_scale[m], w_scale[n] -> y[m,n]"""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < n
    value = tl.load(total + row * n + column, mask=inside, other=0).to(tl.float32)
    scale = tl.load(x_scale + row) * tl.load(w_scale + column, mask=inside, other=0.0)
    tl.store(y + row * n + column, (value * scale).to(y.dtype.element_ty), mask=inside)


@triton.jit
def scaled_product(
    x, w, x_scale, w_scale, y, m, n, k, w_row, w_column,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    FORMAT: tl.constexpr,
):  # fmt: skip
    """x[m,k], w[k,n] int8 with strides (w_row, w_column), w_scale[n] -> y[m,n] = x w w_scale.

    FORMAT i8: x is int8 with x_scale[m]. Else x is a float, x_scale isn't read, and FORMAT is the type that both are
    multiplied in.
    """
    block_m, block_n = grouped_block(tl.program_id(0), tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N), GROUP)
    rows = block_m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = block_n * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    x_at = x + rows[:, None].to(tl.int64) * k + depth[None, :]
    w_at = w + depth[:, None].to(tl.int64) * w_row + columns[None, :].to(tl.int64) * w_column
    in_rows = rows < m
    in_columns = columns < n
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.int32 if FORMAT == "i8" else tl.float32)
    for done in range(0, k, BLOCK_K):
        a = tl.load(x_at, mask=in_rows[:, None] & (depth[None, :] < k - done), other=0.0)
        b = tl.load(w_at, mask=(depth[:, None] < k - done) & in_columns[None, :], other=0.0)
        total = dot(widened(a, FORMAT), widened(b, FORMAT), total, "ieee")
        x_at += BLOCK_K
        w_at += BLOCK_K * w_row
    value = total.to(tl.float32) * tl.load(w_scale + columns, mask=in_columns, other=0.0)[None, :]
    if FORMAT == "i8":
        value = value * tl.load(x_scale + rows, mask=in_rows, other=0.0)[:, None]
    y_at = y + rows[:, None].to(tl.int64) * n + columns[None, :]
    tl.store(y_at, value.to(y.dtype.element_ty), mask=in_rows[:, None] & in_columns[None, :])


def scaled_launch(
    x: torch.Tensor,
    w: torch.Tensor,
    scales: tuple[torch.Tensor, torch.Tensor],
    y: torch.Tensor,
    form: str = "i8",
) -> Launch:
    """x[m,k] times INT8 w[k,n] (which may be a transposed view), by scales of x (any, unless i8) and w."""
    (m, k), n = x.shape, w.shape[1]
    few = m <= 16
    meta = (_ROWS if few else _BLOCKS) if form == "i8" else (_MIXED_ROWS if few else _MIXED_BLOCKS)
    args = (x, w, *scales, y, m, n, k, w.stride(0), w.stride(1))
    grid = (ceil_div(m, meta["BLOCK_M"]) * ceil_div(n, meta["BLOCK_N"]),)
    return Launch(scaled_product, grid, args, meta | {"FORMAT": form})


def rows_launch(x: torch.Tensor, q: torch.Tensor, x_scale: torch.Tensor) -> Launch:
    """Each row of x rounded by its own scale. Raises ValueError for rows that one program can't keep."""
    m, k = x.shape
    if k > LONGEST_ROW:
        raise ValueError(f"one program keeps a row of x: at most {LONGEST_ROW} columns, not {k}")
    return Launch(quantize_rows, (m,), (x, q, x_scale, k), row_blocks(k))


def known_launch(x: torch.Tensor, q: torch.Tensor, scale: float) -> Launch:
    """All of x rounded by one scale."""
    n = x.numel()
    return Launch(quantize_known, (ceil_div(n, 1024),), (x, q, n, scale), {"BLOCK": 1024, "num_warps": 4})


def dequantize_launch(
    total: torch.Tensor, x_scale: torch.Tensor, w_scale: torch.Tensor, y: torch.Tensor
) -> Launch:
    """int32 sums [m,n] times both scales."""
    m, n = total.shape
    block = min(1024, block_of(n, 16))
    meta = {"BLOCK": block, "num_warps": max(1, block // 256)}
    return Launch(dequantize, (m, ceil_div(n, block)), (total, x_scale, w_scale, y, n), meta)


def int8_blocks(m: int) -> dict[str, int]:
    """Block shape, warps and stages of an INT8 product of m rows."""
    return _ROWS if m <= 16 else _BLOCKS


def launches(variant: str, arrays: Mapping[str, torch.Tensor], known_scale: float = 1.0) -> Sequence[Launch]:
    """The launches on x[m,k], w (int8, lying transposed), w_scale -> y; q, x_scale and total lie between them."""
    x, w, y = arrays["x"], arrays["w"], arrays["y"]
    if variant == "f32":
        return [product(x, w, y)]
    w_scale = arrays["w_scale"]
    if variant == "weight_only":
        return [scaled_launch(x, w, (w_scale, w_scale), y, "bf16")]
    q, x_scale = arrays["q"], arrays["x_scale"]
    fused = scaled_launch(q, w, (x_scale, w_scale), y)
    if variant == "int8_static":
        return [known_launch(x, q, known_scale), fused]
    if variant == "int8_dynamic_fused":
        return [rows_launch(x, q, x_scale), fused]
    total = arrays["total"]
    return [
        rows_launch(x, q, x_scale),
        product(q, w, total, blocks=int8_blocks(x.shape[0])),
        dequantize_launch(total, x_scale, w_scale, y),
    ]


def scratch(variant: str, m: int, k: int, n: int) -> Arrays:
    """What lies between the kernels."""
    made: Arrays = {}
    if variant.startswith("int8"):
        made = {"q": _launch.scratch((m, k), "i8"), "x_scale": _launch.scratch((m,), "f32")}
    if variant == "int8_dynamic":
        made["total"] = _launch.scratch((m, n), "i32")
    return made


def bind_triton(case: Case, inputs: Arrays, outputs: Arrays) -> TritonCall:
    """Bind a case: inputs x and w in f32, output y; weights are quantised here, once, and turned.

    8-bit operands of the matrix units lie along k.
    """
    between = scratch(case.variant, case["m"], case["k"], case["n"])
    if case.variant == "f32":
        return _launch.bind(lambda arrays: launches("f32", arrays), inputs, outputs)
    values, w_scale = quantize_columns(inputs["w"])
    known = static_scale(case)
    if case.variant == "int8_static":
        between["x_scale"] = np.full(case["m"], known, np.float32)
    turned = _launch.tensor("w", np.ascontiguousarray(values.T)).t()
    operands = {"x": inputs["x"], "w": turned, "w_scale": w_scale}
    return _launch.bind(lambda arrays: launches(case.variant, arrays, known), operands, outputs, between)
