"""What tiling launches on CUDA: one product x[m,k] w[k,n] -> y[m,n] in f32 (csrc/cuda/tiling.cu)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from flashperf.cuda import launcher
from flashperf.cuda.launcher import ceil_div
from flashperf.emulator import Launch
from flashperf.records import Arrays, Case

_PIPELINE_SHARED_BYTES = 3 * (8192 + 8192)  # stages x (A + B): csrc/cuda/gemm_ffma.cuh

#: Variant -> (threads of a block in x and y, columns and rows of y that a block makes).
_GEOMETRY: dict[str, tuple[tuple[int, ...], tuple[int, int]]] = {
    "naive": ((32, 8), (32, 8)),
    "uncoalesced": ((32, 8), (8, 32)),
    "tiled_8": ((8, 8), (8, 8)),
    "tiled_16": ((16, 16), (16, 16)),
    "tiled_32": ((32, 32), (32, 32)),
    "bank_conflicts": ((32, 32), (32, 32)),
    "register_64": ((256,), (64, 64)),
    "register_128": ((256,), (128, 128)),
    "pipelined": ((256,), (128, 128)),
}
VARIANTS = tuple(_GEOMETRY)
#: What the CPU's names for a good and a bad blocking are here.
ALIASES = {"blocked": "pipelined", "bad_tile": "tiled_8"}


def launches(variant: str, arrays: Mapping[str, Any]) -> list[Launch]:
    """The launch of a variant on x, w and y."""
    x, w, y = arrays["x"], arrays["w"], arrays["y"]
    (m, k), n = x.shape, w.shape[1]
    block, (tile_columns, tile_rows) = _GEOMETRY[variant]
    grid = (ceil_div(n, tile_columns), ceil_div(m, tile_rows))
    if variant == "uncoalesced":  # the x axis runs over rows
        grid = (grid[1], grid[0])
    kernel = variant
    if variant == "pipelined" and (k % 4 or n % 4):
        kernel = "pipelined_any_size"
    shared_bytes = _PIPELINE_SHARED_BYTES if variant == "pipelined" else 0
    return [Launch(kernel, grid, block, (x, w, y, np.int32(m), np.int32(k), np.int32(n)), shared_bytes)]


def bind_cuda(case: Case, inputs: Arrays, outputs: Arrays) -> launcher.EmulatedCall | launcher.GpuCall:
    """Bind a case: inputs x and w, output y, all f32. A variant is one of VARIANTS or ALIASES."""
    variant = ALIASES.get(case.variant, case.variant)
    return launcher.bind("tiling", lambda arrays: launches(variant, arrays), inputs, outputs)
