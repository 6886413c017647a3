"""What batching launches on CUDA: a product over ragged rows, packed or padded (csrc/cuda/batching.cu)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from flashperf.cuda import launcher
from flashperf.cuda.launcher import ceil_div
from flashperf.emulator import Launch
from flashperf.records import Arrays, Case

VARIANTS = ("packed", "padded")

_THREADS = 256
_TILE = 128
_SHARED_BYTES = 3 * (8192 + 8192)  # stages x (A + B): csrc/cuda/gemm_ffma.cuh


def _product(x: Any, w: Any, y: Any) -> Launch:
    (rows, k), n = x.shape, w.shape[1]
    suffix = "" if k % 4 == 0 and n % 4 == 0 else "_any_size"
    grid = (ceil_div(n, _TILE), ceil_div(rows, _TILE))
    args = (x, w, y, np.int32(rows), np.int32(k), np.int32(n))
    return Launch(f"multiply_rows{suffix}", grid, (_THREADS,), args, _SHARED_BYTES)


def launches(variant: str, arrays: Mapping[str, Any], longest: int) -> list[Launch]:
    """The launches on x[rows,k], start[batch + 1], w[k,n] -> y[rows,n], f32: 1, or 3 for ``padded``.

    ``padded`` needs the scratch x_padded[batch * longest,k] and y_padded[batch * longest,n].
    """
    x, w, y, start = arrays["x"], arrays["w"], arrays["y"], arrays["start"]
    if variant == "packed":
        return [_product(x, w, y)]
    x_padded, y_padded = arrays["x_padded"], arrays["y_padded"]
    grid, k, n = (x_padded.shape[0],), np.int32(x.shape[1]), np.int32(w.shape[1])
    length = np.int32(longest)
    return [
        Launch("pad_rows", grid, (_THREADS,), (x, start, x_padded, length, k)),
        _product(x_padded, w, y_padded),
        Launch("unpad_rows", grid, (_THREADS,), (y_padded, start, y, length, n)),
    ]


def longest_of(start: np.ndarray) -> int:
    """Rows of the longest sequence."""
    return int(np.diff(start).max())


def scratch(variant: str, inputs: Arrays) -> Arrays:
    """The rectangles of ``padded``."""
    if variant == "packed":
        return {}
    rows = (inputs["start"].shape[0] - 1) * longest_of(inputs["start"])
    widths = {"x_padded": inputs["x"].shape[1], "y_padded": inputs["w"].shape[1]}
    return {name: np.full((rows, width), np.nan, np.float32) for name, width in widths.items()}


def bind_cuda(case: Case, inputs: Arrays, outputs: Arrays) -> launcher.EmulatedCall | launcher.GpuCall:
    """Bind a case: inputs x, start, w, output y."""
    longest = longest_of(inputs["start"])
    return launcher.bind(
        "batching",
        lambda arrays: launches(case.variant, arrays, longest),
        inputs,
        outputs,
        scratch(case.variant, inputs),
    )
