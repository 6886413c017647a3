"""Preprocessing: the attention mask of a step, kept, built by native code, or rebuilt by the host's arrays.

A batch of tasks padded on the right to one width needs an additive mask: row i of a task of n tokens looks at
key k if k <= i and k < n (0 there, -inf elsewhere), hence at the keys up to min(i, n - 1), its ``position``.

- cached: rows are copied out of a causal table that was made once, as the ``bias`` buffer of GPT-2 is sliced
- native: a kernel writes the mask from the positions
- rebuilt: what a collator and ``_prepare_4d_causal_attention_mask`` in transformers do for every batch, in
  NumPy: pad the lists of ones, make the causal mask, expand both, cast, invert, fill, combine

On a CPU this is host work beside host work; a GPU would wait for it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from flashperf import native
from flashperf.mechanisms._passes import size_bytes
from flashperf.records import Arrays, ArraySpec, Case, Cost, Mechanism, Tolerance

_HIDDEN = np.float32(-np.inf)


def make_inputs(case: Case) -> Arrays:
    """``lengths``[tasks], tokens of each task (the longest fills the width); ``position``[tasks * width]."""
    rng = np.random.default_rng(case.seed)
    tasks, width = case["tasks"], case["width"]
    lengths = rng.integers(1, width + 1, tasks, dtype=np.int32)
    lengths[rng.integers(tasks)] = width
    position = np.minimum(np.arange(width, dtype=np.int32), lengths[:, None] - 1)
    return {"lengths": lengths, "position": position.reshape(-1)}


def outputs(case: Case) -> dict[str, ArraySpec]:
    """mask[tasks * width, width], a row per token of the padded batch."""
    return {"mask": ArraySpec((case["tasks"] * case["width"], case["width"]), "f32")}


def reference(case: Case, inputs: Arrays) -> Arrays:
    """By the definition."""
    row, key = np.arange(case["width"])[:, None], np.arange(case["width"])
    seen = (key <= row) & (key < inputs["lengths"][:, None, None])
    return {"mask": np.where(seen, 0.0, -np.inf).reshape(-1, case["width"])}


def causal_table(width: int) -> np.ndarray:
    """The causal mask of ``width`` rows, as float32."""
    key = np.arange(width)
    return np.where(key <= key[:, None], np.float32(0), _HIDDEN)


def rebuild(lengths: np.ndarray, mask: np.ndarray) -> None:
    """The steps of the host's code, one array operation each."""
    tasks, width = len(lengths), mask.shape[1]
    padded = np.zeros((tasks, width), np.int64)
    for row, length in zip(padded, lengths, strict=True):
        row[:length] = 1
    causal = np.full((width, width), _HIDDEN)
    key = np.arange(width)
    causal[key < (key + 1)[:, None]] = 0
    shape = (tasks, 1, width, width)
    causal = np.broadcast_to(causal, shape)
    expanded = np.broadcast_to(padded[:, None, None, :], shape).astype(np.float32)
    inverted = np.float32(1) - expanded
    padding = np.where(inverted.astype(bool), _HIDDEN, inverted)
    mask.reshape(shape)[...] = np.where(padding.astype(bool), _HIDDEN, causal)


def cost(case: Case) -> Cost:
    """For ``rebuilt``, the arrays that each step of ``rebuild`` reads and writes."""
    tasks, width = case["tasks"], case["width"]
    mask = size_bytes(outputs(case)["mask"])
    positions, table = 4 * tasks * width, 4 * width * width
    if case.variant == "cached":
        return Cost(0, positions + table, mask)
    if case.variant == "native":
        return Cost(0, positions, mask)
    # what a step reads and writes, element sizes 4 (float), 1 (bool), 8 (the padded lists)
    steps = [
        (4 * tasks, 2 * 8 * tasks * width),  # zeros, ones
        (0, table),  # full
        (8 * 2 * width, table // 4),  # comparison
        (table // 4, table // 2),  # fill
        (8 * tasks * width, mask),  # expand, cast
        (mask, mask),  # invert
        (mask, mask // 4),  # to bool
        (mask + mask // 4, mask),  # fill
        (mask, mask // 4),  # to bool
        (mask // 4 + table, mask),  # combine
        (mask, mask),  # into the step's buffer
    ]
    return Cost(
        flops=tasks * width * width,
        bytes_read=sum(read for read, _ in steps),
        bytes_written=sum(written for _, written in steps),
        launches=len(steps),
        allocations=9,
    )


def bind_cpu(case: Case, inputs: Arrays, outputs: Arrays) -> Callable[[], None]:
    if case.variant == "cached":
        return native.prepare(
            "take_rows_f32", causal_table(case["width"]), inputs["position"], outputs["mask"]
        )
    if case.variant == "native":
        return native.prepare("causal_mask", inputs["position"], outputs["mask"], window=0)
    return lambda: rebuild(inputs["lengths"], outputs["mask"])


MECHANISM = Mechanism(
    name="preprocessing",
    question="What does it cost to rebuild the attention mask on the host for every step?",
    claims=("A4", "A9"),
    variants={"cached": ("cpu",), "native": ("cpu",), "rebuilt": ("cpu",)},
    standard="cached",
    flash="rebuilt",
    dtypes=("f32",),
    test_sizes=[{"tasks": 1, "width": 1}, {"tasks": 3, "width": 19}, {"tasks": 2, "width": 64}],
    bench_sizes=[{"tasks": 1, "width": 128}, {"tasks": 8, "width": 256}],
    make_inputs=make_inputs,
    outputs=outputs,
    reference=reference,
    cost=cost,
    tolerance=lambda case: Tolerance(0.0, 0.0, "0 and -inf are exact in every variant"),
    ideal_bytes=lambda case: 4 * case["tasks"] * case["width"] + size_bytes(outputs(case)["mask"]),
    bind={"cpu": bind_cpu},
)
