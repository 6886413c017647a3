"""What batching launches on CUDA: a product over the rows of ragged sequences (csrc/cuda/batching.cu).

x[rows,k], start[sequences + 1] int32, w[k,n] -> y[rows,n], f32. Sequence i has the rows from start[i] on, up to
start[i + 1].
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from flashperf.cuda import launcher
from flashperf.cuda.launcher import ceil_div
from flashperf.emulator import Launch
from flashperf.mechanisms.batching import groups
from flashperf.records import Arrays, Case

VARIANTS = ("bucketed", "packed", "padded", "single")

_THREADS = 256
_TILE = 128
_SHARED_BYTES = 3 * (8192 + 8192)  # stages x (A + B): csrc/cuda/gemm_ffma.cuh


def _product(x: Any, w: Any, y: Any) -> Launch:
    (rows, k), n = x.shape, w.shape[1]
    suffix = "" if k % 4 == 0 and n % 4 == 0 else "_any_size"
    grid = (ceil_div(n, _TILE), ceil_div(rows, _TILE))
    args = (x, w, y, np.int32(rows), np.int32(k), np.int32(n))
    return Launch(f"multiply_rows{suffix}", grid, (_THREADS,), args, _SHARED_BYTES)


def _padded(arrays: Mapping[str, Any], group: int, longest: int) -> list[Launch]:
    """Into a rectangle, the product, and back."""
    x, w, y = arrays["x"], arrays["w"], arrays["y"]
    x_padded, y_padded = arrays[f"x_padded{group}"], arrays[f"y_padded{group}"]
    edges = (arrays[f"first{group}"], arrays[f"end{group}"])
    grid, length = (x_padded.shape[0],), np.int32(longest)
    k, n = np.int32(x.shape[1]), np.int32(w.shape[1])
    return [
        Launch("pad_rows", grid, (_THREADS,), (x, *edges, x_padded, length, k)),
        _product(x_padded, w, y_padded),
        Launch("unpad_rows", grid, (_THREADS,), (y_padded, *edges, y, length, n)),
    ]


def launches(variant: str, arrays: Mapping[str, Any], start: np.ndarray) -> list[Launch]:
    """The launches on x, w, y and the scratch of the groups: 1, a product per sequence, or 3 per group.

    ``start`` is on the host: how many rows there are decides the grid.
    """
    x, w, y, lengths = arrays["x"], arrays["w"], arrays["y"], np.diff(start)
    if variant == "packed":
        return [_product(x, w, y)]
    if variant == "single":
        return [_product(x[first:end], w, y[first:end]) for first, end in pairwise(start.tolist())]
    made = []
    for group, members in enumerate(groups(variant, lengths)):
        made += _padded(arrays, group, int(lengths[members].max()))
    return made


def scratch(variant: str, inputs: Arrays) -> Arrays:
    """Of each group: where its sequences begin and end, and the rectangles."""
    start, made = inputs["start"], {}
    lengths = np.diff(start)
    for group, members in enumerate(groups(variant, lengths)):
        rows = len(members) * int(lengths[members].max())
        for name, width in (("x_padded", inputs["x"].shape[1]), ("y_padded", inputs["w"].shape[1])):
            made[f"{name}{group}"] = np.full((rows, width), np.nan, np.float32)
        made |= {f"first{group}": start[:-1][members], f"end{group}": start[1:][members]}
    return made


def bind_cuda(case: Case, inputs: Arrays, outputs: Arrays) -> launcher.EmulatedCall | launcher.GpuCall:
    """Bind a case: inputs x, start, w, output y."""
    return launcher.bind(
        "batching",
        lambda arrays: launches(case.variant, arrays, inputs["start"]),
        {name: inputs[name] for name in ("x", "w")},
        outputs,
        scratch(case.variant, inputs),
    )
