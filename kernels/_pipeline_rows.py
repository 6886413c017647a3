"""Rows of the language model's state, and its norms: what a step launches beside the mechanisms' own kernels.

Tokens, slots and positions are read from memory, so that a captured graph can be replayed. A row that names no slot or
position rightly writes nothing outside its own output.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from flashperf.kernels._elementwise import BLOCK, LONGEST_ROW, binary, row_blocks
from flashperf.kernels._launch import Launch, block_of, ceil_div
from flashperf.kernels.fusion import residual_rmsnorm, swiglu


@triton.jit
def take_rows(x, index, y, m, d, BLOCK: tl.constexpr):
    """x[m,d], index[rows] -> y[rows,d]; an index outside x is taken as the nearest row of it."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < d
    source = tl.minimum(tl.maximum(tl.load(index + row), 0), m - 1).to(tl.int64)
    tl.store(y + row * d + column, tl.load(x + source * d + column, mask=inside), mask=inside)


@triton.jit
def rope_append(
    qkv, cosines, sines, slot, position, keys, values, q, slots, heads, t,
    E: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    """qkv[m,3,heads,E], cosines and sines [t,E/2] -> q[m,heads,E] and caches [slots,heads,t,E], rotate-half RoPE.

    A position outside the tables gives q = 0; such a row, or one without a slot, appends nothing.
    """
    row = tl.program_id(0)
    head = tl.program_id(1)
    at = tl.arange(0, HALF)
    half: tl.constexpr = E // 2
    inside = at < half
    own = tl.load(slot + row)
    place = tl.load(position + row)
    known = (place >= 0) & (place < t)
    cached = known & (own >= 0) & (own < slots)
    in_table = at < tl.where(known, half, 0)
    in_cache = at < tl.where(cached, half, 0)
    angle = tl.where(known, place, 0) * half + at
    c = tl.load(cosines + angle, mask=in_table, other=0.0)
    s = tl.load(sines + angle, mask=in_table, other=0.0)
    width = heads * E
    first = row.to(tl.int64) * 3 * width + head * E + at
    target = (row.to(tl.int64) * heads + head) * E + at
    a = tl.load(qkv + first, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(qkv + first + half, mask=inside, other=0.0).to(tl.float32)
    tl.store(q + target, (a * c - b * s).to(q.dtype.element_ty), mask=inside)
    tl.store(q + target + half, (b * c + a * s).to(q.dtype.element_ty), mask=inside)
    line = tl.where(cached, own, 0).to(tl.int64) * heads + head
    kept = (line * t + tl.where(cached, place, 0)) * E + at
    a = tl.load(qkv + first + width, mask=in_cache, other=0.0).to(tl.float32)
    b = tl.load(qkv + first + width + half, mask=in_cache, other=0.0).to(tl.float32)
    tl.store(keys + kept, (a * c - b * s).to(keys.dtype.element_ty), mask=in_cache)
    tl.store(keys + kept + half, (b * c + a * s).to(keys.dtype.element_ty), mask=in_cache)
    a = tl.load(qkv + first + 2 * width, mask=in_cache, other=0.0)
    b = tl.load(qkv + first + 2 * width + half, mask=in_cache, other=0.0)
    tl.store(values + kept, a, mask=in_cache)
    tl.store(values + kept + half, b, mask=in_cache)


@triton.jit
def rmsnorm(x, weight, y, columns, eps, BLOCK: tl.constexpr):
    """x[rows,columns], weight[columns] -> y = x / rms(x) * weight; a program keeps one row."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    value = tl.load(x + row * columns + column, mask=inside, other=0.0).to(tl.float32)
    factor = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(value * value, 0) / columns + eps)
    tl.store(y + row * columns + column, (value * scale * factor).to(y.dtype.element_ty), mask=inside)


def take_launch(x: torch.Tensor, index: torch.Tensor, y: torch.Tensor) -> Launch:
    """Rows of x by their numbers."""
    m, d = x.shape
    block = min(1024, block_of(d, 16))
    grid = (y.shape[0], ceil_div(d, block))
    return Launch(take_rows, grid, (x, index, y, m, d), {"BLOCK": block, "num_warps": 4})


def rope_launch(*arrays: torch.Tensor) -> Launch:
    """qkv, cos, sin, slot, position, key cache, value cache, q. Raises ValueError for heads of an odd size."""
    slots, heads, t, e = arrays[5].shape
    if e % 2:
        raise ValueError(f"rotary positions turn pairs: a head of {e} has one left over")
    meta = {"E": e, "HALF": block_of(e // 2, 16), "num_warps": 1}
    return Launch(rope_append, (arrays[0].shape[0], heads), (*arrays, slots, heads, t), meta)


def norm_launch(arrays: tuple[torch.Tensor, ...], eps: float) -> Launch:
    """x, weight, y; or x (to which is added), delta, weight, y."""
    rows, columns = arrays[0].shape
    if columns > LONGEST_ROW:
        raise ValueError(f"one program keeps a row: at most {LONGEST_ROW} columns, not {columns}")
    if len(arrays) == 3:
        return Launch(rmsnorm, (rows,), (*arrays, columns, eps), row_blocks(columns))
    x, delta, weight, y = arrays
    return Launch(residual_rmsnorm, (rows,), (x, delta, weight, x, y, columns, eps), row_blocks(columns))


def swiglu_launch(gate: torch.Tensor, up: torch.Tensor, y: torch.Tensor) -> Launch:
    """silu(gate) * up over arrays of any shape."""
    n = gate.numel()
    return Launch(swiglu, (ceil_div(n, BLOCK),), (gate, up, y, n), {"BLOCK": BLOCK, "num_warps": 4})


def flat(step: str, a: torch.Tensor, b: torch.Tensor, y: torch.Tensor) -> Launch:
    """A pass over two arrays element by element, whatever their shape."""
    return binary(step, a.reshape(1, -1), b.reshape(1, -1), y.reshape(1, -1))
