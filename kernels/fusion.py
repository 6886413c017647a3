"""fusion: operators of a few operations per byte, each as one kernel or as the passes of eager code.

Fused, an operand is read once and the result written once; a row that is reduced stays in the registers of its
program. Arrays, all [rows,cols] of one dtype unless it says otherwise: ``bias_gelu`` x, bias[cols] -> y; ``softmax``
x -> y; ``swiglu`` gate, up -> y; ``residual_rmsnorm`` x, delta, weight[cols] -> total (x + delta), y;
``cross_entropy`` x, target[rows] int32 -> y[rows] f32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import triton
import triton.language as tl

from flashperf.kernels import _launch
from flashperf.kernels._elementwise import (
    BLOCK,
    LONGEST_ROW,
    binary,
    by_row,
    gelu_of,
    row_blocks,
    silu_of,
    unary,
)
from flashperf.kernels._launch import Launch, TritonCall, block_of, ceil_div
from flashperf.records import Arrays, Case

VARIANTS = ("fused", "split")
OPERATORS = ("bias_gelu", "cross_entropy", "residual_rmsnorm", "softmax", "swiglu")
EPSILON = 1e-5


@triton.jit
def bias_gelu(x, bias, y, columns, BLOCK: tl.constexpr):
    """x[rows,columns], bias[columns] -> y[rows,columns]"""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < columns
    value = tl.load(x + row * columns + column, mask=inside, other=0.0).to(tl.float32)
    offset = tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + row * columns + column, gelu_of(value + offset).to(y.dtype.element_ty), mask=inside)


@triton.jit
def swiglu(gate, up, y, n, BLOCK: tl.constexpr):
    """gate[n], up[n] -> y[n]"""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    left = tl.load(gate + at, mask=inside, other=0.0).to(tl.float32)
    right = tl.load(up + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + at, (silu_of(left) * right).to(y.dtype.element_ty), mask=inside)


@triton.jit
def softmax(x, y, columns, BLOCK: tl.constexpr):
    """x[rows,columns] -> y[rows,columns]; a program keeps one row."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    value = tl.load(x + row * columns + column, mask=inside, other=float("-inf")).to(tl.float32)
    weight = tl.exp(value - tl.max(value, 0))
    result = weight / tl.sum(weight, 0)
    tl.store(y + row * columns + column, result.to(y.dtype.element_ty), mask=inside)


@triton.jit
def residual_rmsnorm(x, delta, weight, total, y, columns, eps, BLOCK: tl.constexpr):
    """x, delta [rows,columns], weight[columns] -> total = x + delta, y = total / rms(total) * weight"""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    at = row * columns + column
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    value += tl.load(delta + at, mask=inside, other=0.0).to(tl.float32)
    factor = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    kept = value.to(total.dtype.element_ty)
    value = kept.to(tl.float32)  # what the next layer adds to is what is normalised
    scale = 1.0 / tl.sqrt(tl.sum(value * value, 0) / columns + eps)
    tl.store(total + at, kept, mask=inside)
    tl.store(y + at, (value * scale * factor).to(y.dtype.element_ty), mask=inside)


@triton.jit
def cross_entropy(x, target, y, columns, BLOCK: tl.constexpr):
    """x[rows,columns], target[rows] -> y[rows] = log(sum exp x) - x[target], reading each row once, block by block."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    wanted = tl.load(target + row)
    peaks = tl.full((BLOCK,), float("-inf"), tl.float32)
    sums = tl.zeros((BLOCK,), tl.float32)
    picked = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, columns, BLOCK):
        inside = first + column < columns
        value = tl.load(x + row * columns + first + column, mask=inside, other=float("-inf")).to(tl.float32)
        higher = tl.maximum(peaks, value)
        origin = tl.where(higher == float("-inf"), 0.0, higher)  # lanes beyond the row have seen nothing
        sums = sums * tl.exp(peaks - origin) + tl.exp(value - origin)
        peaks = higher
        picked += tl.where(first + column == wanted, value, 0.0)
    peak = tl.max(peaks, 0)
    result = peak + tl.log(tl.sum(sums * tl.exp(peaks - peak), 0)) - tl.sum(picked, 0)
    tl.store(y + row, result)


@triton.jit
def log_softmax(x, y, columns, BLOCK: tl.constexpr):
    """x[rows,columns] -> y[rows,columns] f32, the whole of it written."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    value = tl.load(x + row * columns + column, mask=inside, other=float("-inf")).to(tl.float32)
    value -= tl.max(value, 0)
    result = value - tl.log(tl.sum(tl.exp(value), 0))
    tl.store(y + row * columns + column, result, mask=inside)


@triton.jit
def pick_loss(logs, target, y, rows, columns, BLOCK: tl.constexpr):
    """logs[rows,columns], target[rows] -> y[rows] = -logs[row, target[row]]"""
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = row < rows
    wanted = tl.load(target + row, mask=inside, other=0)
    value = tl.load(logs + row * columns + wanted, mask=inside, other=0.0)
    tl.store(y + row, -value, mask=inside)


def _fused(op: str, a: Mapping[str, torch.Tensor]) -> Launch:
    if op == "swiglu":
        n = a["gate"].numel()
        meta = {"BLOCK": BLOCK, "num_warps": 4}
        return Launch(swiglu, (ceil_div(n, BLOCK),), (a["gate"], a["up"], a["y"], n), meta)
    x, y = a["x"], a["y"]
    rows, columns = x.shape
    if op == "bias_gelu":
        block = min(BLOCK, block_of(columns, 16))
        meta = {"BLOCK": block, "num_warps": max(1, block // 256)}
        return Launch(bias_gelu, (rows, ceil_div(columns, block)), (x, a["bias"], y, columns), meta)
    if op == "cross_entropy":
        meta = {"BLOCK": min(2 * BLOCK, block_of(columns, 16)), "num_warps": 4}
        return Launch(cross_entropy, (rows,), (x, a["target"], y, columns), meta)
    if op == "softmax":
        return Launch(softmax, (rows,), (x, y, columns), row_blocks(columns))
    args = (x, a["delta"], a["weight"], a["total"], y, columns, EPSILON)
    return Launch(residual_rmsnorm, (rows,), args, row_blocks(columns))


def _split(op: str, a: Mapping[str, torch.Tensor]) -> list[Launch]:
    if op == "residual_rmsnorm":
        return _rmsnorm_passes(a)
    if op == "bias_gelu":
        return [binary("add", a["x"], a["bias"], a["step"], "column"), unary("gelu", a["step"], a["y"])]
    if op == "swiglu":
        return [unary("silu", a["gate"], a["step"]), binary("multiply", a["step"], a["up"], a["y"])]
    if op == "cross_entropy":
        rows, columns = a["x"].shape
        block = block_of(min(rows, 256))
        args = (a["logs"], a["target"], a["y"], rows, columns)
        return [
            Launch(log_softmax, (rows,), (a["x"], a["logs"], columns), row_blocks(columns)),
            Launch(pick_loss, (ceil_div(rows, block),), args, {"BLOCK": block, "num_warps": 1}),
        ]
    return [
        by_row("max", a["x"], a["row"]),
        binary("subtract", a["x"], a["row"], a["step"], "row"),
        unary("exp", a["step"], a["step2"]),
        by_row("sum", a["step2"], a["row2"]),
        binary("divide", a["step2"], a["row2"], a["y"], "row"),
    ]


def _rmsnorm_passes(a: Mapping[str, torch.Tensor]) -> list[Launch]:
    """As LlamaRMSNorm: the middle in f32, between two casts where the arrays are narrower."""
    half = a["x"].dtype != torch.float32
    wide, normal = (a["wide"], a["step"]) if half else (a["total"], a["normal"])
    steps = [
        binary("add", a["x"], a["delta"], a["total"]),
        unary("square", wide, a["squares"]),
        by_row("mean", a["squares"], a["mean"]),
        unary("rsqrt", a["mean"], a["scale"], EPSILON),
        binary("multiply", wide, a["scale"], a["normal"], "row"),
        binary("multiply", normal, a["weight"], a["y"], "column"),
    ]
    if half:
        steps.insert(1, unary("cast", a["total"], a["wide"]))
        steps.insert(-1, unary("cast", a["normal"], a["step"]))
    return steps


def launches(variant: str, op: str, arrays: Mapping[str, torch.Tensor]) -> Sequence[Launch]:
    """The launches of one operator: 1 fused; split 2, 5 (softmax), 6 or 8 (RMSNorm)."""
    columns = arrays["gate" if op == "swiglu" else "x"].shape[1]
    keeps_rows = ("softmax", "residual_rmsnorm") if variant == "fused" else ("cross_entropy",)
    if op in keeps_rows and columns > LONGEST_ROW:
        raise ValueError(f"one program keeps a row of {op}: at most {LONGEST_ROW} columns, not {columns}")
    return [_fused(op, arrays)] if variant == "fused" else _split(op, arrays)


def scratch(op: str, variant: str, dtype: str, rows: int, columns: int) -> Arrays:
    """What lies between the passes: in the arrays' type, or in f32 inside RMSNorm and the loss."""
    if variant == "fused":
        return {}
    whole, own, single = (rows, columns), dtype, "f32"
    known = {
        "bias_gelu": {"step": (whole, own)},
        "swiglu": {"step": (whole, own)},
        "softmax": {"step": (whole, own), "step2": (whole, own), "row": ((rows,), own), "row2": ((rows,), own)},
        "cross_entropy": {"logs": (whole, single)},
        "residual_rmsnorm": {
            "squares": (whole, single), "mean": ((rows,), single), "scale": ((rows,), single),
            "normal": (whole, single),
            **({"wide": (whole, single), "step": (whole, own)} if dtype != "f32" else {}),
        },
    }  # fmt: skip
    return {name: _launch.scratch(shape, kind) for name, (shape, kind) in known[op].items()}


def bind_triton(case: Case, inputs: Arrays, outputs: Arrays) -> TritonCall:
    """Bind a case: the operator is its size ``op``, the arrays are those of the module's docstring."""
    op = case.text("op")
    between = scratch(op, case.variant, case.dtype, case["rows"], case["cols"])
    return _launch.bind(lambda arrays: launches(case.variant, op, arrays), inputs, outputs, between)
