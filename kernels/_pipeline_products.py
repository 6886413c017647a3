"""The products of a step that no mechanism has: without blocks, and in INT8 with SwiGLU or the whole MLP in one kernel.

INT8 weights lie transposed, w[n,k] with w_scale[n], as the matrix units take them; those of ``w8`` as they are, w[k,n].
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from flashperf.kernels._elementwise import silu_of
from flashperf.kernels._launch import Launch, block_of, ceil_div
from flashperf.kernels._products import dot, grouped_block, widened
from flashperf.kernels.quantization import round_to_even

WIDEST_HIDDEN = 1024  # INT8 hidden values that one program keeps of a row

_COLUMNS = 128
_OVER_ROWS = 16


@triton.jit
def naive_product(x, w, y, k, n, BLOCK: tl.constexpr):
    """x[m,k], w[k,n] -> y[m,n]: BLOCK columns of a row per program, one term at a time, nothing used twice."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < n
    integer: tl.constexpr = x.dtype.element_ty == tl.int8
    kind: tl.constexpr = tl.int32 if integer else tl.float32
    total = tl.zeros((BLOCK,), kind)
    for i in range(k):
        left = tl.load(x + row * k + i).to(kind)
        right = tl.load(w + i * n.to(tl.int64) + column, mask=inside, other=0.0).to(kind)
        total += left * right
    tl.store(y + row * n + column, total.to(y.dtype.element_ty), mask=inside)


@triton.jit
def transpose(w, turned, k, n, BLOCK: tl.constexpr):
    """w[k,n] -> turned[n,k]"""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = (row < k)[:, None] & (column < n)[None, :]
    block = tl.load(w + row[:, None].to(tl.int64) * n + column[None, :], mask=inside, other=0.0)
    tl.store(turned + column[:, None].to(tl.int64) * k + row[None, :], tl.trans(block), mask=tl.trans(inside))


@triton.jit
def swiglu_int8(
    x, gate, up, x_scale, gate_scale, up_scale, hidden, m, n, k, w_row, w_column,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    FORMAT: tl.constexpr,
):  # fmt: skip
    """x[m,k], INT8 gate and up [k,n] with strides (w_row, w_column) -> hidden[m,n] = silu(x gate) * (x up), scaled.

    FORMAT i8: x is INT8 with x_scale[m]; else the type that x and the weights are multiplied in.
    """
    block_m, block_n = grouped_block(tl.program_id(0), tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N), GROUP)
    rows = block_m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = block_n * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    x_at = x + rows[:, None].to(tl.int64) * k + depth[None, :]
    w_at = depth[:, None].to(tl.int64) * w_row + columns[None, :].to(tl.int64) * w_column
    in_rows = rows < m
    in_columns = columns < n
    kind: tl.constexpr = tl.int32 if FORMAT == "i8" else tl.float32
    gated = tl.zeros((BLOCK_M, BLOCK_N), kind)
    upped = tl.zeros((BLOCK_M, BLOCK_N), kind)
    for done in range(0, k, BLOCK_K):
        a = widened(tl.load(x_at, mask=in_rows[:, None] & (depth[None, :] < k - done), other=0.0), FORMAT)
        in_weight = (depth[:, None] < k - done) & in_columns[None, :]
        g = widened(tl.load(gate + w_at, mask=in_weight, other=0.0), FORMAT)
        u = widened(tl.load(up + w_at, mask=in_weight, other=0.0), FORMAT)
        gated = dot(a, g, gated, "ieee")
        upped = dot(a, u, upped, "ieee")
        x_at += BLOCK_K
        w_at += BLOCK_K * w_row
    left = gated.to(tl.float32) * tl.load(gate_scale + columns, mask=in_columns, other=0.0)[None, :]
    right = upped.to(tl.float32) * tl.load(up_scale + columns, mask=in_columns, other=0.0)[None, :]
    if FORMAT == "i8":
        of_row = tl.load(x_scale + rows, mask=in_rows, other=0.0)[:, None]
        left = left * of_row
        right = right * of_row
    at = hidden + rows[:, None].to(tl.int64) * n + columns[None, :]
    inside = in_rows[:, None] & in_columns[None, :]
    tl.store(at, (silu_of(left) * right).to(hidden.dtype.element_ty), mask=inside)


@triton.jit
def rounded_rows(x):
    """x[rows,columns] f32 -> INT8 values, and the scale of each row."""
    peak = tl.max(tl.abs(x), 1)
    scale = tl.where(peak > 0.0, peak / 127.0, 1.0)
    return round_to_even(x / scale[:, None]), scale


@triton.jit
def whole_mlp_int8(
    x, gate, gate_scale, up, up_scale, down, down_scale, y, m, d, f,
    BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_F: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """x[m,d], gate and up [f,d], down [d,f] INT8 -> y[m,d]; rows of x and of the hidden values are rounded here."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    wide = tl.arange(0, BLOCK_D)
    part = tl.arange(0, BLOCK_F)
    in_x = (rows < m)[:, None] & (wide < d)[None, :]
    line = rows[:, None].to(tl.int64) * d
    q, x_scale = rounded_rows(tl.load(x + line + wide[None, :], mask=in_x, other=0.0).to(tl.float32))
    into = (wide < d)[:, None] & (part < f)[None, :]
    weight_at = part[None, :] * d + wide[:, None]
    zeros = tl.zeros((BLOCK_M, BLOCK_F), tl.int32)
    gated = dot(q, tl.load(gate + weight_at, mask=into, other=0.0), zeros, "ieee").to(tl.float32)
    upped = dot(q, tl.load(up + weight_at, mask=into, other=0.0), zeros, "ieee").to(tl.float32)
    gated = gated * x_scale[:, None] * tl.load(gate_scale + part, mask=part < f, other=0.0)[None, :]
    upped = upped * x_scale[:, None] * tl.load(up_scale + part, mask=part < f, other=0.0)[None, :]
    h, h_scale = rounded_rows(silu_of(gated) * upped)
    for first in range(0, d, BLOCK_N):
        column = first + tl.arange(0, BLOCK_N)
        back = (part < f)[:, None] & (column < d)[None, :]
        weights = tl.load(down + column[None, :] * f + part[:, None], mask=back, other=0.0)
        total = dot(h, weights, tl.zeros((BLOCK_M, BLOCK_N), tl.int32), "ieee").to(tl.float32)
        scale = tl.load(down_scale + column, mask=column < d, other=0.0)
        total = total * h_scale[:, None] * scale[None, :]
        inside = (rows < m)[:, None] & (column < d)[None, :]
        tl.store(y + line + column[None, :], total.to(y.dtype.element_ty), mask=inside)


def naive_launch(x: torch.Tensor, w: torch.Tensor, y: torch.Tensor) -> Launch:
    """x[m,k] w[k,n], floats or INT8."""
    (m, k), n = x.shape, w.shape[1]
    grid = (m, ceil_div(n, _COLUMNS))
    return Launch(naive_product, grid, (x, w, y, k, n), {"BLOCK": _COLUMNS, "num_warps": 4})


def transpose_launch(w: torch.Tensor, turned: torch.Tensor) -> Launch:
    """w[k,n] into turned[n,k]."""
    k, n = w.shape
    grid = (ceil_div(k, 64), ceil_div(n, 64))
    return Launch(transpose, grid, (w, turned, k, n), {"BLOCK": 64, "num_warps": 4})


def swiglu_int8_launch(
    x: torch.Tensor, weights: tuple[torch.Tensor, ...], scales: tuple[torch.Tensor, ...], hidden: torch.Tensor,
    form: str,
) -> Launch:  # fmt: skip
    """weights: gate and up [k,n]; scales: of x (any for w8), gate, up; form: i8, or what is multiplied in."""
    (m, k), n = x.shape, hidden.shape[1]
    meta = {
        "BLOCK_M": 16 if m <= 16 else 64, "BLOCK_N": 64, "BLOCK_K": 32 if form == "f32" else 64, "GROUP": 8,
        "num_warps": 4 if m <= 16 else 8, "num_stages": 3, "FORMAT": form,
    }  # fmt: skip
    grid = (ceil_div(m, meta["BLOCK_M"]) * ceil_div(n, meta["BLOCK_N"]),)
    args = (x, *weights, *scales, hidden, m, n, k, weights[0].stride(0), weights[0].stride(1))
    return Launch(swiglu_int8, grid, args, meta)


def whole_mlp_int8_launch(arrays: tuple[torch.Tensor, ...], f: int) -> Launch:
    """x, then values and scale of gate, up and down, y. Raises ValueError for rows that one program can't keep."""
    m, d = arrays[0].shape
    if max(d, f) > WIDEST_HIDDEN:
        raise ValueError(f"the over-fused INT8 MLP keeps rows of up to {WIDEST_HIDDEN}, not d={d} f={f}")
    meta = {
        "BLOCK_M": _OVER_ROWS, "BLOCK_D": block_of(d, 32), "BLOCK_F": block_of(f, 32), "BLOCK_N": 32,
        "num_warps": 8, "num_stages": 1,
    }  # fmt: skip
    return Launch(whole_mlp_int8, (ceil_div(m, _OVER_ROWS),), (*arrays, m, d, f), meta)
