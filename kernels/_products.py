"""What kernels with a matrix product share: one product on the matrix units, the order of programs, the product."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from flashperf.kernels._launch import Launch, ceil_div

#: Triton 3.6 to 3.9: the interpreter multiplies the bits of bf16 operands as integers. Widened, they are right.
WIDEN_BF16 = tl.constexpr(bool(triton.knobs.runtime.interpret))

#: Blocks of a product on the matrix units of sm_80 and later: rows, columns, depth, warps, stages.
BLOCKS = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP": 8, "num_warps": 8, "num_stages": 3}
#: f32 on the FMA units: operands go through registers, so blocks are as large as the sums in registers allow.
FMA_BLOCKS = {"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 16, "GROUP": 8, "num_warps": 8, "num_stages": 3}
#: Few rows: the smallest block that the matrix units take, and many programs along the columns.
ROW_BLOCKS = {"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 64, "GROUP": 1, "num_warps": 4, "num_stages": 4}
FMA_ROW_BLOCKS = ROW_BLOCKS | {"BLOCK_K": 32}


@triton.jit
def dot(a, b, total, PRECISION: tl.constexpr):
    """total + a b, where every kernel multiplies; the interpreter's fault with bf16 is worked around here alone."""
    if WIDEN_BF16 and a.dtype == tl.bfloat16:
        a = a.to(tl.float32)
        b = b.to(tl.float32)
    return tl.dot(a, b, total, input_precision=PRECISION, out_dtype=total.dtype)


@triton.jit
def widened(x, FORMAT: tl.constexpr):
    """x in the type that is multiplied in (f32, bf16, f16), by way of f32; ``i8`` leaves it as it is."""
    if FORMAT == "bf16":
        x = x.to(tl.float32).to(tl.bfloat16)
    elif FORMAT == "f16":
        x = x.to(tl.float32).to(tl.float16)
    elif FORMAT == "f32":
        x = x.to(tl.float32)
    return x


@triton.jit
def grouped_block(program, blocks_m, blocks_n, GROUP: tl.constexpr):
    """(block row, block column) of a program: GROUP block rows side by side, so that programs in flight share operands

    in L2. GROUP 1 walks along one block row and reads all of w for it.
    """
    per_group = GROUP * blocks_n
    first = program // per_group * GROUP
    height = tl.minimum(blocks_m - first, GROUP)
    within = program % per_group
    return first + within % height, within // height


@triton.jit
def matmul(
    x, w, y, m, n, k, w_row, w_column, alpha,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """x[m,k], w[k,n] with strides (w_row, w_column) -> y[m,n] = alpha x w, summed in f32 (int32 for i8)."""
    block_m, block_n = grouped_block(tl.program_id(0), tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N), GROUP)
    rows = block_m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = block_n * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    x_at = x + rows[:, None].to(tl.int64) * k + depth[None, :]
    w_at = w + depth[:, None].to(tl.int64) * w_row + columns[None, :].to(tl.int64) * w_column
    in_rows = rows[:, None] < m
    in_columns = columns[None, :] < n
    integer: tl.constexpr = x.dtype.element_ty == tl.int8
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.int32 if integer else tl.float32)
    for done in range(0, k, BLOCK_K):
        a = tl.load(x_at, mask=in_rows & (depth[None, :] < k - done), other=0.0)
        b = tl.load(w_at, mask=(depth[:, None] < k - done) & in_columns, other=0.0)
        total = dot(a, b, total, PRECISION)
        x_at += BLOCK_K
        w_at += BLOCK_K * w_row
    if not integer:
        total = total * alpha
    y_at = y + rows[:, None].to(tl.int64) * n + columns[None, :]
    tl.store(y_at, total.to(y.dtype.element_ty), mask=in_rows & in_columns)


def blocks_for(x: torch.Tensor, precision: str = "ieee") -> dict[str, int]:
    """Block shape, warps and stages that suit a product's operands."""
    if x.dtype == torch.float32 and precision == "ieee":
        return FMA_ROW_BLOCKS if x.shape[0] <= 16 else FMA_BLOCKS
    if x.shape[0] <= 16:
        return ROW_BLOCKS | {"BLOCK_K": 128 // x.itemsize}
    return BLOCKS | {"BLOCK_K": 128 // x.itemsize}


def product(
    x: torch.Tensor,
    w: torch.Tensor,
    y: torch.Tensor,
    *,
    alpha: float = 1.0,
    precision: str = "ieee",
    blocks: Mapping[str, int] | None = None,
    kernel: Any = matmul,
) -> Launch:
    """The launch of y[m,n] = alpha x[m,k] w[k,n]; w may be a transposed view. ``precision`` is for f32 operands."""
    (m, k), n = x.shape, w.shape[1]
    meta = dict(blocks if blocks is not None else blocks_for(x, precision))
    args = (x, w, y, m, n, k, w.stride(0), w.stride(1), alpha)
    if meta:
        grid: Any = (ceil_div(m, meta["BLOCK_M"]) * ceil_div(n, meta["BLOCK_N"]),)
    else:  # the autotuner fills them in
        grid = lambda chosen: (ceil_div(m, chosen["BLOCK_M"]) * ceil_div(n, chosen["BLOCK_N"]),)  # noqa: E731
    return Launch(kernel, grid, args, meta | {"PRECISION": precision})
