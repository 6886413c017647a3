"""batching: a product over the rows of sequences of unequal length: packed, padded (all, or by buckets), one by one.

x[rows,k], start[sequences + 1] int32, w[k,n] -> y[rows,n], f32. Packed, the rows of all sequences follow one another.
Padding adds rows that mean nothing to the product, and a copy in and out where the data comes packed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import torch
import triton
import triton.language as tl

from flashperf.kernels import _launch
from flashperf.kernels._launch import Launch, TritonCall, block_of, ceil_div
from flashperf.kernels._products import product
from flashperf.mechanisms.batching import groups
from flashperf.records import Arrays, Case

VARIANTS = ("bucketed", "packed", "padded", "single")


@triton.jit
def pad_rows(x, first, end, padded, longest, k, BLOCK: tl.constexpr):
    """x[rows,k], first[batch], end[batch] -> padded[batch,longest,k], zeros beyond a sequence's end."""
    line = tl.program_id(0)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    sequence = line // longest
    row = tl.load(first + sequence) + line % longest
    width = tl.where(row < tl.load(end + sequence), k, 0)  # of a row beyond the end there is nothing to read
    value = tl.load(x + row.to(tl.int64) * k + column, mask=column < width, other=0.0)
    tl.store(padded + line.to(tl.int64) * k + column, value, mask=column < k)


@triton.jit
def unpad_rows(padded, first, end, y, longest, n, BLOCK: tl.constexpr):
    """padded[batch,longest,n], first[batch], end[batch] -> y[rows,n]: the rows that mean something."""
    line = tl.program_id(0)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    sequence = line // longest
    row = tl.load(first + sequence) + line % longest
    inside = column < tl.where(row < tl.load(end + sequence), n, 0)
    value = tl.load(padded + line.to(tl.int64) * n + column, mask=inside, other=0.0)
    tl.store(y + row.to(tl.int64) * n + column, value, mask=inside)


def _padded(arrays: Mapping[str, torch.Tensor], group: int, longest: int) -> list[Launch]:
    """Into a rectangle, the product, and back."""
    x, w, y = arrays["x"], arrays["w"], arrays["y"]
    x_padded, y_padded = arrays[f"x_padded{group}"], arrays[f"y_padded{group}"]
    edges = (arrays[f"first{group}"], arrays[f"end{group}"])
    made = []
    for kernel, source, target in ((pad_rows, x, x_padded), (unpad_rows, y_padded, y)):
        width = source.shape[1]
        block = min(1024, block_of(width, 16))
        grid = (x_padded.shape[0], ceil_div(width, block))
        meta = {"BLOCK": block, "num_warps": 4}
        made.append(Launch(kernel, grid, (source, *edges, target, longest, width), meta))
    return [made[0], product(x_padded, w, y_padded), made[1]]


def launches(variant: str, arrays: Mapping[str, torch.Tensor], start: np.ndarray) -> Sequence[Launch]:
    """The launches on x, w, y and the scratch of the groups: 1, a product per sequence, or 3 per group.

    ``start`` is on the host: how many rows there are decides the grid.
    """
    x, w, y, lengths = arrays["x"], arrays["w"], arrays["y"], np.diff(start)
    if variant == "packed":
        return [product(x, w, y)]
    if variant == "single":
        return [product(x[first:end], w, y[first:end]) for first, end in pairwise(start.tolist())]
    made = []
    for group, members in enumerate(groups(variant, lengths)):
        made += _padded(arrays, group, int(lengths[members].max()))
    return made


def scratch(variant: str, inputs: Arrays) -> Arrays:
    """Of each group: where its sequences begin and end, and the rectangles."""
    start, lengths = inputs["start"], np.diff(inputs["start"])
    made: Arrays = {}
    for group, members in enumerate(groups(variant, lengths)):
        rows = len(members) * int(lengths[members].max())
        for name, width in (("x_padded", inputs["x"].shape[1]), ("y_padded", inputs["w"].shape[1])):
            made[f"{name}{group}"] = _launch.scratch((rows, width), "f32")
        made |= {f"first{group}": start[:-1][members], f"end{group}": start[1:][members]}
    return made


def bind_triton(case: Case, inputs: Arrays, outputs: Arrays) -> TritonCall:
    """Bind a case: inputs x, start, w, output y."""
    return _launch.bind(
        lambda arrays: launches(case.variant, arrays, inputs["start"]),
        {name: inputs[name] for name in ("x", "w")},
        outputs,
        scratch(case.variant, inputs),
    )
