"""What attention launches on CUDA (csrc/cuda/attention.cu).

q[m,heads,e], k[slots,heads,t,e], v alike, slot[m], position[m] int32 -> y[m,heads,e]. Query i
sees the keys 0 to position[i] of its slot, or the last ``window`` of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from flashperf.cuda import launcher
from flashperf.cuda.launcher import ceil_div
from flashperf.emulator import Launch
from flashperf.records import Arrays, Case

VARIANTS = ("online", "materialised", "window", "window_as_mask")
MAX_HEAD_SIZE = 128

_TILE_QUERIES = 64
_ROW_WARPS = 4


def _arguments(arrays: Mapping[str, Any], window: int, scale: float, mask: Any) -> tuple[Any, ...]:
    q, k = arrays["q"], arrays["k"]
    (m, heads, e), (slots, _, t, _) = q.shape, k.shape
    if e > MAX_HEAD_SIZE:
        raise ValueError(f"attention on CUDA takes head sizes up to {MAX_HEAD_SIZE}, not {e}")
    sizes = (np.int32(n) for n in (m, heads, e, slots, t, window))
    return (q, k, arrays["v"], arrays["slot"], arrays["position"], mask, *sizes, np.float32(scale))


def online_launch(dtype: str, args: tuple[Any, ...], y: Any) -> Launch:
    """The online kernel for y[m,heads,e], whose arguments are ``args`` and y: by rows in f32, by tiles else."""
    m, heads, e = y.shape
    if dtype == "f32":
        return Launch("online_f32", (ceil_div(m, _ROW_WARPS), heads), (32 * _ROW_WARPS,), (*args, y))
    padded = 64 if e <= 64 else 128
    suffix = str(padded) if e % 8 == 0 else "any_size"
    tile_bytes = 64 * 2 * (padded if e % 8 == 0 else 128)
    grid = (ceil_div(m, _TILE_QUERIES), heads)
    return Launch(f"online_{dtype}_{suffix}", grid, (128,), (*args, y), 4 * tile_bytes)


def launches(
    variant: str, dtype: str, arrays: Mapping[str, Any], *, scale: float, window: int = 0
) -> list[Launch]:
    """The launches of a variant: 1, or 4 for ``materialised`` (with the scratch ``scores``).

    ``window`` skips blocks of keys. ``window_as_mask`` has the same window in mask[m,t] (f32, added to the
    scores), ``materialised`` has the order of the keys in it.
    """
    y = arrays["y"]
    m, heads, _ = y.shape
    if variant != "materialised":
        mask = arrays["mask"] if variant == "window_as_mask" else None
        limit = window if variant == "window" else 0
        return [online_launch(dtype, _arguments(arrays, limit, scale, mask), y)]
    scores, mask = arrays["scores"], arrays["mask"]
    t, threads = scores.shape[2], (32 * _ROW_WARPS,)
    grid, rows = (ceil_div(m, _ROW_WARPS), heads), m * heads
    args = _arguments(arrays, 0, scale, None)
    masked = (scores, mask, np.int32(m), np.int32(t))
    return [
        Launch(f"scores_{dtype}", grid, threads, (*args, scores)),
        Launch("add_mask", (rows, ceil_div(t, 256)), (256,), masked),
        Launch("softmax", (ceil_div(rows, _ROW_WARPS),), threads, (scores, np.int32(rows), np.int32(t))),
        Launch(f"values_{dtype}", grid, threads, (*args, scores, y)),
    ]


def causal_window_mask(position: np.ndarray, t: int, window: int) -> np.ndarray:
    """mask[m,t], f32, to be added to scores: 0 where query i sees key j, -infinity elsewhere."""
    key = np.arange(t)[None, :]
    last = position[:, None]
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
        made["scores"] = np.full((heads, m, t), np.nan, np.float32)
    return made


def bind_cuda(case: Case, inputs: Arrays, outputs: Arrays) -> launcher.EmulatedCall | launcher.GpuCall:
    """Bind a case: inputs q, k, v, slot, position; size ``window``; output y. Masks are made here, once."""
    window = case["window"]
    scale = float(inputs["q"].shape[2]) ** -0.5
    return launcher.bind(
        "attention",
        lambda arrays: launches(case.variant, case.dtype, arrays, scale=scale, window=window),
        {name: inputs[name] for name in ("q", "k", "v", "slot", "position")},
        outputs,
        scratch(case.variant, inputs, window),
    )
