"""The passes that eager code launches: one arithmetic step each, rounded to the type of the result."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from flashperf.kernels._launch import Launch, block_of, ceil_div

BLOCK = 1024  # elements of a program
LONGEST_ROW = 65536  # elements that a program keeps of a row
_ROW_BLOCK = 4096  # elements that a reduction takes at a time
INV_SQRT_2 = tl.constexpr(0.7071067811865476)


@triton.jit
def gelu_of(x):
    """x Phi(x), f32."""
    return 0.5 * x * (1.0 + tl.erf(x * INV_SQRT_2))


@triton.jit
def silu_of(x):
    """x sigmoid(x), f32."""
    return x / (1.0 + tl.exp(-x))


@triton.jit
def unary_pass(x, y, n, eps, STEP: tl.constexpr, BLOCK: tl.constexpr):
    """x[n] -> y[n]; STEP is cast, square, exp, silu, gelu or rsqrt (of x + eps)."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    if STEP == "square":
        value = value * value
    elif STEP == "exp":
        value = tl.exp(value)
    elif STEP == "silu":
        value = silu_of(value)
    elif STEP == "gelu":
        value = gelu_of(value)
    elif STEP == "rsqrt":
        value = 1.0 / tl.sqrt(value + eps)
    tl.store(y + at, value.to(y.dtype.element_ty), mask=inside)


@triton.jit
def binary_pass(a, b, y, rows, columns, STEP: tl.constexpr, EACH: tl.constexpr, BLOCK: tl.constexpr):
    """a[rows,columns] -> y; b per EACH element, row or column; STEP is add, subtract, multiply or divide."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < columns
    at = row * columns + column
    left = tl.load(a + at, mask=inside, other=0.0).to(tl.float32)
    if EACH == "row":
        right = tl.load(b + row).to(tl.float32)
    elif EACH == "column":
        right = tl.load(b + column, mask=inside, other=1.0).to(tl.float32)
    else:
        right = tl.load(b + at, mask=inside, other=1.0).to(tl.float32)
    if STEP == "add":
        value = left + right
    elif STEP == "subtract":
        value = left - right
    elif STEP == "multiply":
        value = left * right
    else:
        value = left / right
    tl.store(y + at, value.to(y.dtype.element_ty), mask=inside)


@triton.jit
def row_pass(x, y, columns, STEP: tl.constexpr, BLOCK: tl.constexpr):
    """x[rows,columns] -> y[rows]; STEP is max, sum or mean."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    least: tl.constexpr = float("-inf") if STEP == "max" else 0.0
    parts = tl.full((BLOCK,), least, tl.float32)
    for first in range(0, columns, BLOCK):
        inside = first + column < columns
        values = tl.load(x + row * columns + first + column, mask=inside, other=least).to(tl.float32)
        parts = tl.maximum(parts, values) if STEP == "max" else parts + values
    result = tl.max(parts, 0) if STEP == "max" else tl.sum(parts, 0)
    if STEP == "mean":
        result = result / columns
    tl.store(y + row, result.to(y.dtype.element_ty))


def row_blocks(columns: int) -> dict[str, int]:
    """Meta-parameters of a program that keeps a row of this length: 16 elements or so per thread."""
    block = block_of(columns, 16)
    return {"BLOCK": block, "num_warps": max(1, min(16, block // 512))}


def unary(step: str, x: torch.Tensor, y: torch.Tensor, eps: float = 0.0) -> Launch:
    """A pass over all elements, one operand."""
    n = x.numel()
    meta = {"STEP": step, "BLOCK": BLOCK, "num_warps": 4}
    return Launch(unary_pass, (ceil_div(n, BLOCK),), (x, y, n, eps), meta)


def binary(step: str, a: torch.Tensor, b: torch.Tensor, y: torch.Tensor, each: str = "element") -> Launch:
    """A pass over all elements of a[rows,columns]; b per ``element``, ``row`` or ``column``."""
    rows, columns = a.shape
    block = min(BLOCK, block_of(columns, 16))
    meta = {"STEP": step, "EACH": each, "BLOCK": block, "num_warps": max(1, block // 256)}
    return Launch(binary_pass, (rows, ceil_div(columns, block)), (a, b, y, rows, columns), meta)


def by_row(step: str, x: torch.Tensor, y: torch.Tensor) -> Launch:
    """A reduction of every row."""
    rows, columns = x.shape
    block = min(_ROW_BLOCK, block_of(columns, 16))
    return Launch(row_pass, (rows,), (x, y, columns), {"STEP": step, "BLOCK": block, "num_warps": 4})
