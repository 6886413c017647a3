"""launch: z = alpha x + y in one launch, in many, in a CUDA graph of many, and by programs that stay.

A launch costs microseconds on the host and a drain and a fill of the GPU. A persistent kernel launches as many programs
as run at once, and each takes every n-th block: one launch, whatever the number of blocks.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch
import triton
import triton.language as tl

from flashperf.backends import available
from flashperf.kernels import _launch
from flashperf.kernels._launch import Launch, TritonCall, ceil_div
from flashperf.mechanisms.launch import ALPHA
from flashperf.records import Arrays, Case

VARIANTS = ("whole", "chunked", "graph", "persistent")

_BLOCK = 1024
_INTERPRETED_PROGRAMS = 3


@triton.jit
def scaled_sum(x, y, z, first, count, alpha, BLOCK: tl.constexpr):
    """x[n], y[n] -> z[n] = alpha x + y for the ``count`` elements from ``first`` on."""
    within = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = within < count
    at = first + within
    left = tl.load(x + at, mask=inside, other=0.0)
    right = tl.load(y + at, mask=inside, other=0.0)
    tl.store(z + at, alpha * left + right, mask=inside)


@triton.jit
def scaled_sum_persistent(x, y, z, n, alpha, BLOCK: tl.constexpr):
    """The same over all n elements: a program takes every num_programs-th block."""
    step = tl.num_programs(0) * BLOCK
    for first in range(tl.program_id(0) * BLOCK, n, step):
        at = first + tl.arange(0, BLOCK)
        inside = at < n
        left = tl.load(x + at, mask=inside, other=0.0)
        right = tl.load(y + at, mask=inside, other=0.0)
        tl.store(z + at, alpha * left + right, mask=inside)


def chunks(n: int, count: int) -> list[tuple[int, int]]:
    """(first, elements) of at most ``count`` chunks of nearly equal length; they start at multiples of 4."""
    groups = ceil_div(n, 4)
    count = min(count, groups)
    edges = [min(n, 4 * (groups * i // count)) for i in range(count + 1)]
    return [(first, end - first) for first, end in pairwise([*edges[:-1], n])]


@functools.cache
def resident_programs(per_sm: int = 8) -> int:
    """How many programs a persistent kernel launches: ``per_sm`` on every SM; a few where there is no GPU."""
    if available("triton"):
        return _INTERPRETED_PROGRAMS
    return per_sm * torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count


def launches(
    variant: str, arrays: Mapping[str, torch.Tensor], *, alpha: float, count: int
) -> Sequence[Launch]:
    """The launches on x[n], y[n] -> z[n], f32; ``count`` is how many ``chunked`` and ``graph`` make at most."""
    x, y, z = arrays["x"], arrays["y"], arrays["z"]
    n, meta = x.shape[0], {"BLOCK": _BLOCK, "num_warps": 4}
    if variant == "persistent":
        grid = (min(resident_programs(), ceil_div(n, _BLOCK)),)
        return [Launch(scaled_sum_persistent, grid, (x, y, z, n, alpha), meta)]
    return [
        Launch(scaled_sum, (ceil_div(size, _BLOCK),), (x, y, z, first, size, alpha), meta)
        for first, size in chunks(n, 1 if variant == "whole" else count)
    ]


def bind_triton(case: Case, inputs: Arrays, outputs: Arrays) -> TritonCall:
    """Bind a case: inputs x and y, output z; sizes n and ``chunks``."""
    return _launch.bind(
        lambda arrays: launches(case.variant, arrays, alpha=ALPHA, count=case["chunks"]),
        {name: inputs[name] for name in ("x", "y")},
        outputs,
        graph=case.variant == "graph",
    )
