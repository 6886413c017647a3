"""What the pipeline's attention launches on CUDA (csrc/cuda/attention.cu, pipeline_attention.cu).

q[m,heads,e], caches [slots,heads,t,e], slot[m], position[m], mask[m,t], scores[heads,m,t], extent[1]: the number of
positions in use, read by the kernels, so that launches needn't change as a sequence grows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from flashperf.cuda import attention
from flashperf.cuda.launcher import ceil_div
from flashperf.emulator import Launch

_ROW_WARPS = 4

Arrays = Sequence[Any]


def online(kind: str, arrays: Arrays, window: int, scale: float) -> Launch:
    """q, keys, values, slot, position -> y; the last ``window`` keys only, if that isn't 0."""
    named = dict(zip(("q", "k", "v", "slot", "position", "y"), arrays, strict=True))
    variant = "window" if window else "online"
    return attention.launches(variant, kind, named, scale=scale, window=window)[0]


def masked(kind: str, arrays: Arrays, scale: float) -> Launch:
    """q, keys, values, slot, mask, extent -> y: every key in use, plus the mask."""
    q, k, v, slot, mask, extent, y = arrays
    sizes = _sizes(q, k)
    plain = attention.online_launch(kind, (q, k, v, slot, mask, extent, *sizes, np.float32(scale)), y)
    return Launch(
        plain.kernel.replace("online", "masked"), plain.grid, plain.block, plain.args, plain.shared_bytes
    )


def _sizes(q: Any, cache: Any) -> tuple[np.int32, ...]:
    (m, heads, e), (slots, _, t, _) = q.shape, cache.shape
    if e > attention.MAX_HEAD_SIZE:
        raise ValueError(f"attention on CUDA takes head sizes up to {attention.MAX_HEAD_SIZE}, not {e}")
    return tuple(np.int32(size) for size in (m, heads, e, slots, t))


def _per_query(kernel: str, q: Any, args: tuple[Any, ...]) -> Launch:
    """A warp per query and head."""
    m, heads, _ = q.shape
    return Launch(kernel, (ceil_div(m, _ROW_WARPS), heads), (32 * _ROW_WARPS,), args)


def scores(kind: str, arrays: Arrays, scale: float) -> Launch:
    """q, keys, slot, extent -> scores."""
    q, k, *rest = arrays
    return _per_query(f"scores_{kind}", q, (q, k, *rest, *_sizes(q, k), np.float32(scale)))


def scores_window(kind: str, arrays: Arrays, window: int, scale: float) -> Launch:
    """q, keys, slot, position, extent -> scores, minus infinity outside the window."""
    q, k, *rest = arrays
    args = (q, k, *rest, *_sizes(q, k), np.int32(window), np.float32(scale))
    return _per_query(f"scores_window_{kind}", q, args)


def values(kind: str, arrays: Arrays) -> Launch:
    """scores, values, slot, extent -> y."""
    weights, v, slot, extent, y = arrays
    return _per_query(f"values_{kind}", y, (weights, v, slot, extent, y, *_sizes(y, v)))


def score_pass(kernel: str, arrays: Arrays) -> Launch:
    """A pass over scores: ``add_mask``, ``softmax``, ``scores_max``, ``_sum``, ``_subtract_exp``, ``_divide``."""
    heads, m, t = arrays[0].shape
    rows = heads * m
    if kernel in ("softmax", "scores_max", "scores_sum"):
        args = (*arrays, np.int32(rows), np.int32(t))
        return Launch(kernel, (ceil_div(rows, _ROW_WARPS),), (32 * _ROW_WARPS,), args)
    sizes = (np.int32(m), np.int32(t)) if kernel == "add_mask" else (np.int32(t),)
    threads = min(256, 32 * ceil_div(t, 32))
    return Launch(kernel, (rows, ceil_div(t, threads)), (threads,), (*arrays, *sizes))
