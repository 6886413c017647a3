"""overfusion: a SwiGLU MLP, y = (silu(x gate) * (x up)) down, in five kernels, two, one, and with split sums.

Sharing a kernel between the two first products and the activation is free. Fusing the third as well leaves rows as the
only axis to spread over: at 16 rows a program, a batch of 128 fills 8 of more than 100 SMs, and each reads all weights.
``split_k`` goes the other way where rows are few: more programs than blocks of y, each with a part of the sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import triton
import triton.language as tl

from flashperf.kernels import _launch
from flashperf.kernels._elementwise import binary, silu_of, unary
from flashperf.kernels._launch import Launch, TritonCall, block_of, ceil_div
from flashperf.kernels._products import dot, grouped_block, product
from flashperf.mechanisms.overfusion import SPLITS as PARTS
from flashperf.mechanisms.overfusion import WIDEST_TRITON_ROW
from flashperf.records import Arrays, Case

VARIANTS = ("fused", "split", "over", "split_k")

_OVER_ROWS = 16


@triton.jit
def gate_up(
    x, gate, up, hidden, m, f, d,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """x[m,d], gate[d,f], up[d,f] -> hidden[m,f] = silu(x gate) * (x up)"""
    block_m, block_n = grouped_block(tl.program_id(0), tl.cdiv(m, BLOCK_M), tl.cdiv(f, BLOCK_N), GROUP)
    rows = block_m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = block_n * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    x_at = x + rows[:, None].to(tl.int64) * d + depth[None, :]
    weight_at = depth[:, None].to(tl.int64) * f + columns[None, :]
    in_rows = rows[:, None] < m
    in_columns = columns[None, :] < f
    gated = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    upped = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for done in range(0, d, BLOCK_K):
        a = tl.load(x_at, mask=in_rows & (depth[None, :] < d - done), other=0.0)
        in_weight = (depth[:, None] < d - done) & in_columns
        gated = dot(a, tl.load(gate + weight_at, mask=in_weight, other=0.0), gated, "ieee")
        upped = dot(a, tl.load(up + weight_at, mask=in_weight, other=0.0), upped, "ieee")
        x_at += BLOCK_K
        weight_at += BLOCK_K * f
    result = silu_of(gated) * upped
    hidden_at = hidden + rows[:, None].to(tl.int64) * f + columns[None, :]
    tl.store(hidden_at, result.to(hidden.dtype.element_ty), mask=in_rows & in_columns)


@triton.jit
def whole_mlp(
    x, gate, up, down, y, m, d, f,
    BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_F: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """x[m,d], gate[d,f], up[d,f], down[f,d] -> y[m,d]; a program carries BLOCK_M rows through all three products."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    wide = tl.arange(0, BLOCK_D)
    part = tl.arange(0, BLOCK_F)
    depth = tl.arange(0, BLOCK_K)
    in_rows = rows[:, None] < m
    line = rows[:, None].to(tl.int64) * d
    total = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    for first in range(0, f, BLOCK_F):
        column = first + part
        gated = tl.zeros((BLOCK_M, BLOCK_F), tl.float32)
        upped = tl.zeros((BLOCK_M, BLOCK_F), tl.float32)
        for done in range(0, d, BLOCK_K):
            deep = done + depth
            a = tl.load(x + line + deep[None, :], mask=in_rows & (deep[None, :] < d), other=0.0)
            into = (deep[:, None] < d) & (column[None, :] < f)
            weight_at = deep[:, None] * f + column[None, :]
            gated = dot(a, tl.load(gate + weight_at, mask=into, other=0.0), gated, "ieee")
            upped = dot(a, tl.load(up + weight_at, mask=into, other=0.0), upped, "ieee")
        hidden = (silu_of(gated) * upped).to(y.dtype.element_ty)
        back = (column[:, None] < f) & (wide[None, :] < d)
        weights = tl.load(down + column[:, None] * d + wide[None, :], mask=back, other=0.0)
        total = dot(hidden, weights, total, "ieee")
    tl.store(y + line + wide[None, :], total.to(y.dtype.element_ty), mask=in_rows & (wide[None, :] < d))


@triton.jit
def partial_product(
    x, w, parts, m, n, k, per_part,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """x[m,k], w[k,n] -> parts[splits,m,n] f32: part s sums the ``per_part`` terms from s * per_part on."""
    split = tl.program_id(2)
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    first = split * per_part
    depth = first + tl.arange(0, BLOCK_K)
    end = tl.minimum(first + per_part, k)
    x_at = x + rows[:, None].to(tl.int64) * k + depth[None, :]
    w_at = w + depth[:, None].to(tl.int64) * n + columns[None, :]
    in_rows = rows[:, None] < m
    in_columns = columns[None, :] < n
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for done in range(0, per_part, BLOCK_K):
        a = tl.load(x_at, mask=in_rows & (depth[None, :] < end - done), other=0.0)
        b = tl.load(w_at, mask=(depth[:, None] < end - done) & in_columns, other=0.0)
        total = dot(a, b, total, "ieee")
        x_at += BLOCK_K
        w_at += BLOCK_K * n
    at = (split.to(tl.int64) * m + rows[:, None]) * n + columns[None, :]
    tl.store(parts + at, total, mask=in_rows & in_columns)


@triton.jit
def add_parts(parts, y, n, SPLITS: tl.constexpr, BLOCK: tl.constexpr):
    """parts[SPLITS,n] f32 -> y[n], in the order of the parts: the same sum every time, which atomics don't give."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    total = tl.zeros((BLOCK,), tl.float32)
    for part in tl.static_range(SPLITS):
        total += tl.load(parts + part * n.to(tl.int64) + at, mask=inside, other=0.0)
    tl.store(y + at, total.to(y.dtype.element_ty), mask=inside)


def gate_up_launch(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, hidden: torch.Tensor) -> Launch:
    (m, d), f = x.shape, gate.shape[1]
    wide = x.dtype == torch.float32
    meta = {
        "BLOCK_M": 16 if m <= 16 else 64, "BLOCK_N": 64, "BLOCK_K": 16 if wide else 64, "GROUP": 8,
        "num_warps": 4 if m <= 16 else 8, "num_stages": 3,
    }  # fmt: skip
    grid = (ceil_div(m, meta["BLOCK_M"]) * ceil_div(f, meta["BLOCK_N"]),)
    return Launch(gate_up, grid, (x, gate, up, hidden, m, f, d), meta)


def over_launch(a: Mapping[str, torch.Tensor]) -> Launch:
    x, y = a["x"], a["y"]
    (m, d), f = x.shape, a["gate"].shape[1]
    if d > WIDEST_TRITON_ROW:
        raise ValueError(f"one program keeps the sums of its rows: d up to {WIDEST_TRITON_ROW}, not {d}")
    wide = x.dtype == torch.float32
    meta = {
        "BLOCK_M": _OVER_ROWS, "BLOCK_D": block_of(d, 16), "BLOCK_F": 16 if wide else 32,
        "BLOCK_K": 16 if wide else 64, "num_warps": 8, "num_stages": 2,
    }  # fmt: skip
    return Launch(whole_mlp, (ceil_div(m, _OVER_ROWS),), (x, a["gate"], a["up"], a["down"], y, m, d, f), meta)


def _split_down(a: Mapping[str, torch.Tensor]) -> list[Launch]:
    hidden, down, parts, y = a["hidden"], a["down"], a["parts"], a["y"]
    (m, f), d = hidden.shape, down.shape[1]
    block_m, block_k = 16 if m <= 16 else 64, 16 if hidden.dtype == torch.float32 else 64
    per_part = block_k * ceil_div(f, block_k * PARTS)
    meta = {"BLOCK_M": block_m, "BLOCK_N": 64, "BLOCK_K": block_k, "num_warps": 4, "num_stages": 3}
    grid = (ceil_div(m, block_m), ceil_div(d, 64), PARTS)
    return [
        Launch(partial_product, grid, (hidden, down, parts, m, d, f, per_part), meta),
        Launch(
            add_parts, (ceil_div(m * d, 1024),), (parts, y, m * d),
            {"SPLITS": PARTS, "BLOCK": 1024, "num_warps": 4},
        ),
    ]  # fmt: skip


def launches(variant: str, arrays: Mapping[str, torch.Tensor]) -> Sequence[Launch]:
    """The launches on x[m,d], gate[d,f], up[d,f], down[f,d] -> y[m,d]: split 5, fused 2, over 1, split_k 3."""
    x, gate, up, down, y = (arrays[name] for name in ("x", "gate", "up", "down", "y"))
    if variant == "over":
        return [over_launch(arrays)]
    hidden = arrays["hidden"]
    if variant == "split_k":
        return [gate_up_launch(x, gate, up, hidden), *_split_down(arrays)]
    last = product(hidden, down, y)
    if variant == "fused":
        return [gate_up_launch(x, gate, up, hidden), last]
    gated, upped, activated = (arrays[name] for name in ("gated", "upped", "activated"))
    return [
        product(x, gate, gated),
        product(x, up, upped),
        unary("silu", gated, activated),
        binary("multiply", activated, upped, hidden),
        last,
    ]


def scratch(variant: str, dtype: str, m: int, d: int, f: int) -> Arrays:
    """The hidden activations that go through memory, and the parts of a sum."""
    names = {"split": ("gated", "upped", "activated", "hidden"), "over": ()}.get(variant, ("hidden",))
    made = {name: _launch.scratch((m, f), dtype) for name in names}
    if variant == "split_k":
        made["parts"] = _launch.scratch((PARTS, m, d), "f32")
    return made


def bind_triton(case: Case, inputs: Arrays, outputs: Arrays) -> TritonCall:
    """Bind a case: inputs x, weight_gate, weight_up, weight_down, output y."""
    named = {name.removeprefix("weight_"): array for name, array in inputs.items()}
    between = scratch(case.variant, case.dtype, case["m"], case["d"], case["f"])
    return _launch.bind(lambda arrays: launches(case.variant, arrays), named, outputs, between)
