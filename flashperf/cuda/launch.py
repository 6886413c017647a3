"""What launch launches on CUDA: z = alpha x + y in one launch, in many, persistent (csrc/cuda/launch.cu)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from flashperf.cuda import launcher
from flashperf.cuda.launcher import ceil_div
from flashperf.emulator import Launch
from flashperf.mechanisms.launch import ALPHA
from flashperf.records import Arrays, Case

VARIANTS = ("whole", "chunked", "graph", "persistent")

_THREADS = 256
_PER_BLOCK = 4 * _THREADS  # elements


def chunks(n: int, count: int) -> list[tuple[int, int]]:
    """(first, elements) of at most ``count`` chunks of nearly equal length; they start at multiples of 4."""
    groups = ceil_div(n, 4)
    count = min(count, groups)
    edges = [min(n, 4 * (groups * i // count)) for i in range(count + 1)]
    return [(first, end - first) for first, end in pairwise([*edges[:-1], n])]


def launches(
    variant: str, arrays: Mapping[str, Any], *, alpha: float, count: int, blocks: int | None = None
) -> list[Launch]:
    """The launches on x[n], y[n], z[n] (f32), and queue[2] (int32, zeros) for ``persistent``.

    ``count``: how many launches ``chunked`` and ``graph`` make (one per 4 elements at most), and how many chunks
    are in the queue of ``persistent``.
    """
    x, y, z = arrays["x"], arrays["y"], arrays["z"]
    n, scale = x.shape[0], np.float32(alpha)
    if variant == "persistent":
        size = 4 * ceil_div(n, 4 * count)
        grid = (min(blocks or launcher.resident_blocks(), ceil_div(n, size)),)
        args = (x, y, z, np.int64(n), np.int32(size), scale, arrays["queue"])
        return [Launch("persistent", grid, (_THREADS,), args)]
    return [
        Launch(
            "chunk",
            (ceil_div(size, _PER_BLOCK),),
            (_THREADS,),
            (x, y, z, np.int64(first), np.int32(size), scale),
        )
        for first, size in chunks(n, 1 if variant == "whole" else count)
    ]


def scratch(variant: str) -> Arrays:
    """The queue of ``persistent``; every call leaves it as it was."""
    return {"queue": np.zeros(2, np.int32)} if variant == "persistent" else {}


def bind_cuda(case: Case, inputs: Arrays, outputs: Arrays) -> launcher.EmulatedCall | launcher.GpuCall:
    """Bind a case: inputs x and y, output z; sizes n and ``chunks``."""
    return launcher.bind(
        "launch",
        lambda arrays: launches(case.variant, arrays, alpha=ALPHA, count=case["chunks"]),
        {name: inputs[name] for name in ("x", "y")},
        outputs,
        scratch(case.variant),
        graph=case.variant == "graph",
    )
