"""Attention with its scores in memory: written, masked, normalised and read back, a kernel each.

q[m,heads,e], k and v [slots,heads,t,e], slot[m], position[m] int32, mask[m,t] f32, scores[heads,m,t] f32, y[m,heads,e].
extent[1] int32 says how many keys are in use: kernels are launched for t and leave the others alone, so that a captured
graph fits a sequence that grows.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from flashperf.kernels._elementwise import LONGEST_ROW, row_blocks
from flashperf.kernels._launch import Launch, block_of, ceil_div
from flashperf.kernels._products import dot


@triton.jit
def in_use(extent, t):
    """How many keys are in use."""
    return tl.minimum(tl.load(extent), t)


@triton.jit
def row_slots(slot, rows, m, slots):
    """The slot of each row, -1 where it has none; the lowest that any row has, and one above the highest."""
    own = tl.load(slot + rows, mask=rows < m, other=-1)
    own = tl.where((own >= 0) & (own < slots), own, -1)
    return own, tl.min(tl.where(own < 0, slots, own), 0), tl.max(own, 0) + 1


@triton.jit
def write_scores(
    q, k, slot, position, extent, scores, m, heads, slots, t, window, scale,
    E: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_T: tl.constexpr, SEEN: tl.constexpr,
):  # fmt: skip
    """scores of the keys in use; with SEEN, minus infinity outside the last ``window`` (0: all) up to position."""
    head = tl.program_id(2)
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    keys = tl.program_id(1) * BLOCK_T + tl.arange(0, BLOCK_T)
    column = tl.arange(0, BLOCK_E)
    in_head = column < E
    length = in_use(extent, t)
    own, lowest, above = row_slots(slot, rows, m, slots)
    q_at = (rows[:, None].to(tl.int64) * heads + head) * E + column[None, :]
    queries = tl.load(q + q_at, mask=(rows[:, None] < m) & in_head[None, :], other=0.0)
    total = tl.zeros((BLOCK_M, BLOCK_T), tl.float32)
    zeros = tl.zeros((BLOCK_M, BLOCK_T), tl.float32)
    for s in range(lowest, above):
        at = ((s * heads + head).to(tl.int64) * t + keys)[:, None] * E + column[None, :]
        block = tl.load(k + at, mask=(keys < length)[:, None] & in_head[None, :], other=0.0)
        total = tl.where(own[:, None] == s, dot(queries, tl.trans(block), zeros, "ieee"), total)
    total = total * scale
    if SEEN:
        last = tl.load(position + rows, mask=rows < m, other=-1)
        first = tl.where(window > 0, tl.maximum(last + 1 - window, 0), 0)
        seen = (keys[None, :] <= last[:, None]) & (keys[None, :] >= first[:, None])
        total = tl.where(seen, total, float("-inf"))
    at = (head.to(tl.int64) * m + rows[:, None]) * t + keys[None, :]
    tl.store(scores + at, total, mask=(rows[:, None] < m) & (keys[None, :] < length))


@triton.jit
def add_mask(scores, mask, extent, m, t, BLOCK: tl.constexpr):
    """scores[heads,m,t] += mask[m,t]"""
    line = tl.program_id(0).to(tl.int64)
    key = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = key < in_use(extent, t)
    value = tl.load(scores + line * t + key, mask=inside, other=0.0)
    value += tl.load(mask + line % m * t + key, mask=inside, other=0.0)
    tl.store(scores + line * t + key, value, mask=inside)


@triton.jit
def normalise(scores, extent, t, BLOCK: tl.constexpr):
    """scores[rows,t] -> the softmax of each row, in place; a row that sees nothing becomes zeros."""
    row = tl.program_id(0).to(tl.int64)
    key = tl.arange(0, BLOCK)
    inside = key < in_use(extent, t)
    value = tl.load(scores + row * t + key, mask=inside, other=float("-inf"))
    peak = tl.max(value, 0)
    weight = tl.exp(value - tl.where(peak == float("-inf"), 0.0, peak))
    total = tl.sum(weight, 0)
    tl.store(scores + row * t + key, weight / tl.where(total > 0.0, total, 1.0), mask=inside)


@triton.jit
def weigh_values(
    scores, v, slot, extent, y, m, heads, slots, t,
    E: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_T: tl.constexpr,
):  # fmt: skip
    """scores, v -> y"""
    head = tl.program_id(1)
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tl.arange(0, BLOCK_E)
    key = tl.arange(0, BLOCK_T)
    in_head = column < E
    length = in_use(extent, t)
    own, lowest, above = row_slots(slot, rows, m, slots)
    total = tl.zeros((BLOCK_M, BLOCK_E), tl.float32)
    for s in range(lowest, above):
        for start in range(0, length, BLOCK_T):
            keys = start + key
            in_keys = keys < length
            line = (head.to(tl.int64) * m + rows[:, None]) * t + keys[None, :]
            weights = tl.load(scores + line, mask=(own[:, None] == s) & in_keys[None, :], other=0.0)
            at = ((s * heads + head).to(tl.int64) * t + keys)[:, None] * E + column[None, :]
            values = tl.load(v + at, mask=in_keys[:, None] & in_head[None, :], other=0.0)
            total = dot(weights.to(values.dtype), values, total, "ieee")
    y_at = (rows[:, None].to(tl.int64) * heads + head) * E + column[None, :]
    tl.store(y + y_at, total.to(y.dtype.element_ty), mask=(rows[:, None] < m) & in_head[None, :])


@triton.jit
def reduce_scores(scores, extent, result, t, STEP: tl.constexpr, BLOCK: tl.constexpr):
    """scores[rows,t] -> result[rows] over the keys in use; STEP is max or sum."""
    row = tl.program_id(0).to(tl.int64)
    key = tl.arange(0, BLOCK)
    least: tl.constexpr = float("-inf") if STEP == "max" else 0.0
    value = tl.load(scores + row * t + key, mask=key < in_use(extent, t), other=least)
    tl.store(result + row, tl.max(value, 0) if STEP == "max" else tl.sum(value, 0))


@triton.jit
def map_scores(scores, of_row, extent, t, STEP: tl.constexpr, BLOCK: tl.constexpr):
    """scores[rows,t], of_row[rows] -> in place; STEP is subtract_exp or divide (0 where there is nothing to divide)."""
    row = tl.program_id(0).to(tl.int64)
    key = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = key < in_use(extent, t)
    value = tl.load(scores + row * t + key, mask=inside, other=0.0)
    own = tl.load(of_row + row)
    if STEP == "subtract_exp":
        value = tl.exp(value - tl.where(own == float("-inf"), 0.0, own))
    else:
        value = tl.where(own > 0.0, value / tl.where(own > 0.0, own, 1.0), 0.0)
    tl.store(scores + row * t + key, value, mask=inside)


def scores_launch(
    arrays: tuple[Any, ...], blocks: dict[str, int], scale: float, position: Any = None, window: int = 0
) -> Launch:
    """q, k, slot, extent -> scores; with ``position`` minus infinity where a row doesn't see."""
    q, k, slot, extent, scores = arrays
    (m, heads, _), slots, t = q.shape, k.shape[0], k.shape[2]
    grid = (ceil_div(m, blocks["BLOCK_M"]), ceil_div(t, blocks["BLOCK_T"]), heads)
    seen = position is not None
    args = (q, k, slot, position if seen else slot, extent, scores, m, heads, slots, t, window, scale)
    return Launch(write_scores, grid, args, blocks | {"SEEN": seen})


def values_launch(arrays: tuple[Any, ...], blocks: dict[str, int]) -> Launch:
    """scores, v, slot, extent -> y."""
    scores, v, slot, extent, y = arrays
    (m, heads, _), slots, t = y.shape, v.shape[0], v.shape[2]
    grid = (ceil_div(m, blocks["BLOCK_M"]), heads)
    return Launch(weigh_values, grid, (scores, v, slot, extent, y, m, heads, slots, t), blocks)


def pass_launch(step: str, arrays: tuple[torch.Tensor, ...]) -> Launch:
    """A pass over scores[heads,m,t], the first array: add_mask, softmax, max, sum, subtract_exp or divide."""
    scores = arrays[0]
    heads, m, t = scores.shape
    if t > LONGEST_ROW:
        raise ValueError(f"a row of {t} scores doesn't fit one program: at most {LONGEST_ROW}")
    block = min(1024, block_of(t, 16))
    tiles, meta = (heads * m, ceil_div(t, block)), {"BLOCK": block, "num_warps": 4}
    if step == "add_mask":
        return Launch(add_mask, tiles, (*arrays, m, t), meta)
    if step == "softmax":
        return Launch(normalise, (heads * m,), (*arrays, t), row_blocks(t))
    if step in ("max", "sum"):
        return Launch(reduce_scores, (heads * m,), (*arrays, t), row_blocks(t) | {"STEP": step})
    return Launch(map_scores, tiles, (*arrays, t), meta | {"STEP": step})
