"""cache: t = x^2 + x, y = 2 t - x by two kernels, over whole arrays or chunk by chunk.

Whole, t has left L2 when it is read if it is larger than that. Chunk by chunk each consumer finds its part there, at
the price of more launches. Only the order of the launches differs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import triton
import triton.language as tl

from flashperf.kernels import _launch
from flashperf.kernels._launch import Launch, TritonCall, ceil_div
from flashperf.mechanisms.cache import parts
from flashperf.records import Arrays, Case

VARIANTS = ("chunked", "whole")

_BLOCK = 1024


@triton.jit
def produce(x, t, first, count, BLOCK: tl.constexpr):
    """x[n] -> t[n] = x^2 + x for the ``count`` elements from ``first`` on."""
    within = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = within < count
    value = tl.load(x + first + within, mask=inside, other=0.0)
    tl.store(t + first + within, value * value + value, mask=inside)


@triton.jit
def consume(t, x, y, first, count, BLOCK: tl.constexpr):
    """t[n], x[n] -> y[n] = 2 t - x for the ``count`` elements from ``first`` on."""
    within = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = within < count
    produced = tl.load(t + first + within, mask=inside, other=0.0)
    value = tl.load(x + first + within, mask=inside, other=0.0)
    tl.store(y + first + within, 2.0 * produced - value, mask=inside)


def launches(variant: str, arrays: Mapping[str, torch.Tensor], chunk: int) -> Sequence[Launch]:
    """The launches on x[n], t[n] (scratch), y[n], f32: 2 for ``whole``, else 2 per ``chunk`` elements."""
    x, t, y = arrays["x"], arrays["t"], arrays["y"]
    meta = {"BLOCK": _BLOCK, "num_warps": 4}
    made = []
    for part in parts(variant, x.shape[0], chunk):
        first, count = part.start, part.stop - part.start
        grid = (ceil_div(count, _BLOCK),)
        made.append(Launch(produce, grid, (x, t, first, count), meta))
        made.append(Launch(consume, grid, (t, x, y, first, count), meta))
    return made


def bind_triton(case: Case, inputs: Arrays, outputs: Arrays) -> TritonCall:
    """Bind a case: input x, output y; sizes n and ``chunk`` (elements)."""
    between = {"t": _launch.scratch(inputs["x"].shape, "f32")}
    return _launch.bind(
        lambda arrays: launches(case.variant, arrays, case["chunk"]), inputs, outputs, between
    )
