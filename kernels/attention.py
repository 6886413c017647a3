"""attention: softmax(q k^T scale) v with the scores in registers (flash), in memory, or of a window of keys.

q[m,heads,e], k[slots,heads,t,e], v alike, slot[m], position[m] int32 -> y[m,heads,e]. Row i sees the keys 0 to
position[i] of its slot, or the last ``window`` of them; a row without a valid slot and position gives zeros. Online, a
program walks over blocks of keys with a running maximum and sum (Milakov and Gimelshein 2018; FlashAttention, Dao et
al. 2022). A window skips the blocks outside it; as a mask over all keys it saves nothing and is read as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from flashperf.kernels import _launch
from flashperf.kernels._attention_scores import pass_launch, scores_launch, values_launch
from flashperf.kernels._launch import Launch, TritonCall, block_of, ceil_div
from flashperf.kernels._products import dot
from flashperf.records import Arrays, Case

VARIANTS = ("online", "materialised", "window", "window_as_mask")
MAX_HEAD_SIZE = 256

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def key_range(slot, position, rows, m, slots, t, window, MASKED: tl.constexpr):
    """For each row its slot (-1 if it isn't valid), its first key and the one after its last.

    With MASKED ``position`` is one number, how many keys are in use: every row sees those.
    """
    inside = rows < m
    own = tl.load(slot + rows, mask=inside, other=-1)
    if MASKED:
        last = tl.zeros_like(own) + tl.load(position) - 1
        first = tl.zeros_like(own)
    else:
        last = tl.load(position + rows, mask=inside, other=-1)
        first = tl.where(window > 0, tl.maximum(last + 1 - window, 0), 0)
    end = tl.minimum(last + 1, t)
    valid = (own >= 0) & (own < slots) & (last >= 0)
    return tl.where(valid, own, -1), tl.where(valid, first, t), tl.where(valid, end, 0)


@triton.jit
def online(
    q, k, v, slot, position, mask, y, m, heads, slots, t, window, scale,
    E: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_T: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """The module's arrays; a program has BLOCK_M rows of one head. mask[m,t] f32 is added to scores with MASKED."""
    head = tl.program_id(1)
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tl.arange(0, BLOCK_E)
    key = tl.arange(0, BLOCK_T)
    in_head = column < E
    own, first, end = key_range(slot, position, rows, m, slots, t, window, MASKED)
    q_at = (rows[:, None].to(tl.int64) * heads + head) * E + column[None, :]
    queries = tl.load(q + q_at, mask=(rows[:, None] < m) & in_head[None, :], other=0.0)
    peak = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    weight = tl.zeros((BLOCK_M,), tl.float32)
    total = tl.zeros((BLOCK_M, BLOCK_E), tl.float32)
    last_slot = tl.max(own, 0)
    all_of = tl.where(
        tl.min(own, 0) == last_slot, last_slot, last_slot + 1
    )  # above every slot if rows differ
    seen_from = tl.max(first, 0)
    seen_to = tl.min(end, 0)
    low = tl.min(first, 0) // BLOCK_T * BLOCK_T
    high = tl.max(end, 0)
    for s in range(tl.maximum(tl.min(tl.where(own < 0, slots, own), 0), 0), last_slot + 1):
        base = (s * heads + head).to(tl.int64) * t
        for start in range(low, high, BLOCK_T):
            keys = start + key
            in_keys = keys < t
            at = (base + keys)[:, None] * E + column[None, :]
            block = tl.load(k + at, mask=in_keys[:, None] & in_head[None, :], other=0.0)
            zeros = tl.zeros((BLOCK_M, BLOCK_T), tl.float32)
            scores = dot(queries, tl.trans(block), zeros, "ieee") * (scale * LOG2_E)
            if MASKED:
                mask_at = rows[:, None].to(tl.int64) * t + keys[None, :]
                inside = (rows[:, None] < m) & in_keys[None, :]
                scores += tl.load(mask + mask_at, mask=inside, other=0.0) * LOG2_E
            if (
                (s < all_of) | (start < seen_from) | (start + BLOCK_T > seen_to)
            ):  # not every row sees every key
                seen = (
                    (keys[None, :] >= first[:, None]) & (keys[None, :] < end[:, None]) & (own[:, None] == s)
                )
                scores = tl.where(seen, scores, float("-inf"))
            higher = tl.maximum(peak, tl.max(scores, 1))
            origin = tl.where(higher == float("-inf"), 0.0, higher)  # nothing seen yet: all weights are zero
            weights = tl.exp2(scores - origin[:, None])
            shrink = tl.exp2(peak - origin)
            values = tl.load(v + at, mask=in_keys[:, None] & in_head[None, :], other=0.0)
            weight = weight * shrink + tl.sum(weights, 1)
            total = dot(weights.to(values.dtype), values, total * shrink[:, None], "ieee")
            peak = higher
    result = total / tl.where(weight > 0.0, weight, 1.0)[:, None]
    tl.store(y + q_at, result.to(y.dtype.element_ty), mask=(rows[:, None] < m) & in_head[None, :])


def blocks_of(q: torch.Tensor, masked: bool = False) -> dict[str, int]:
    """Rows, keys, warps: what a program's scores, weights and sums take of its registers."""
    m, _, e = q.shape
    if e > MAX_HEAD_SIZE:
        raise ValueError(f"attention in Triton takes head sizes up to {MAX_HEAD_SIZE}, not {e}")
    wide = q.dtype == torch.float32
    rows = 16 if m <= 16 else 32 if wide else 64 if m <= 64 else 128
    return {
        "E": e, "BLOCK_E": block_of(e, 16), "BLOCK_M": rows, "BLOCK_T": 32 if wide or masked or e > 128 else 64,
        "num_warps": 4 if rows <= 64 else 8, "num_stages": 2,
    }  # fmt: skip


def launches(variant: str, arrays: Mapping[str, Any], *, scale: float, window: int = 0) -> Sequence[Launch]:
    """The launches of a variant: 1, or 4 for ``materialised`` (with the scratch ``scores``).

    ``window`` skips blocks of keys. ``window_as_mask`` has the same window in mask[m,t] (f32), ``materialised`` has the
    order of the keys in it. Raises ValueError for heads larger than MAX_HEAD_SIZE.
    """
    q, k, v, slot, position, y = (arrays[name] for name in ("q", "k", "v", "slot", "position", "y"))
    meta = blocks_of(q, variant == "window_as_mask")
    if variant == "window_as_mask":
        return [online_launch((q, k, v, slot, arrays["extent"], y), meta, scale, mask=arrays["mask"])]
    if variant != "materialised":
        limit = window if variant == "window" else 0
        return [online_launch((q, k, v, slot, position, y), meta, scale, window=limit)]
    scores, mask, extent = arrays["scores"], arrays["mask"], arrays["extent"]
    return [
        scores_launch((q, k, slot, extent, scores), meta, scale),
        pass_launch("add_mask", (scores, mask, extent)),
        pass_launch("softmax", (scores, extent)),
        values_launch((scores, v, slot, extent, y), meta),
    ]


def online_launch(
    arrays: tuple[Any, ...], blocks: dict[str, int], scale: float, window: int = 0, mask: Any = None
) -> Launch:
    """q, k, v, slot, position -> y; with a mask, extent in the place of position."""
    q, k, v, slot, position, y = arrays
    (m, heads, _), slots, t = q.shape, k.shape[0], k.shape[2]
    masked = mask is not None
    args = (q, k, v, slot, position, mask if masked else q, y, m, heads, slots, t, window, scale)
    return Launch(online, (ceil_div(m, blocks["BLOCK_M"]), heads), args, blocks | {"MASKED": masked})


def causal_window_mask(position: np.ndarray, t: int, window: int) -> np.ndarray:
    """mask[m,t] f32: 0 where a row at ``position`` sees a key, minus infinity elsewhere; window 0 is none."""
    key, last = np.arange(t)[None, :], position[:, None]
    seen = (key <= last) & ((key > last - window) if window > 0 else True)
    return np.where(seen, 0.0, -np.inf).astype(np.float32)


def scratch(variant: str, inputs: Arrays, window: int) -> Arrays:
    """The mask of the variants that have one, and the scores[heads,m,t] of ``materialised``, both f32."""
    (m, heads, _), t = inputs["q"].shape, inputs["k"].shape[2]
    made: Arrays = {}
    if variant in ("materialised", "window_as_mask"):
        limit = window if variant == "window_as_mask" else 0
        made["mask"] = causal_window_mask(inputs["position"], t, limit)
    if variant == "materialised":
        made["scores"] = _launch.scratch((heads, m, t), "f32")
    return made


def bind_triton(case: Case, inputs: Arrays, outputs: Arrays) -> TritonCall:
    """Bind a case: inputs q, k, v, slot, position; size ``window``; output y. Masks are made here, once."""
    window, scale = case["window"], float(inputs["q"].shape[2]) ** -0.5
    return _launch.bind(
        lambda arrays: launches(case.variant, arrays, scale=scale, window=window),
        {name: inputs[name] for name in ("q", "k", "v", "slot", "position", "extent")},
        outputs,
        scratch(case.variant, inputs, window),
    )
