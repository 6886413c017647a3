"""Batching: what do the rows cost that mean nothing?

A product over the rows of sequences of unequal length, which lie one after another. The case says how many rows
are real (``rows``); ``Cost.flops`` over 2 k n is how many a variant multiplies.

- bucketed: sequences whose lengths share a power of two are padded to the longest of them, a product per bucket
  (``group_by_length`` of transformers' Trainer, ``bucket_by_sequence_length`` of TensorFlow)
- packed: one product over the real rows; their starts are kept beside them (FlashAttention's ``varlen`` calls)
- padded: all sequences padded to the longest, and the real rows picked out of the result (``pad_input`` and
  ``unpad_input`` in FlashAttention's ``bert_padding``)
- single: one product per sequence, as with ``batch_size=1``

``bench/real_tokens.py`` prints the time per real row and the share of rows that are real for batches of 1 to 64.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from flashperf.dtypes import aligned_copy
from flashperf.mechanisms import _passes, _products, _ragged
from flashperf.mechanisms._elsewhere import binder
from flashperf.mechanisms._passes import Pass
from flashperf.records import Arrays, ArraySpec, Case, Cost, Mechanism, Tolerance


def lengths(case: Case) -> np.ndarray:
    """Rows of each sequence, int64 [sequences], from the case's seed."""
    return _ragged.lengths(case.seed, case["sequences"], case["rows"], case["longest"])


def groups(variant: str, lengths: np.ndarray) -> list[np.ndarray]:
    """The sequences that are padded to a common length, by their numbers; none where nothing is padded."""
    if variant == "padded":
        return [np.arange(len(lengths))]
    if variant != "bucketed":
        return []
    power = np.ceil(np.log2(lengths)).astype(int)
    return [np.flatnonzero(power == p) for p in np.unique(power)]


def _specs(case: Case) -> dict[str, ArraySpec]:
    rows, k, n, each = case["rows"], case["k"], case["n"], lengths(case)
    specs = {
        "x": ArraySpec((rows, k), "f32"),
        "packed": _products.weight_spec(case, k, n, "f32"),
        "y": ArraySpec((rows, n), "f32"),
    }
    for g, members in enumerate(groups(case.variant, each)):
        padded = len(members) * int(each[members].max())
        specs |= {f"{edge}{g}": ArraySpec((len(members),), "i32") for edge in ("first", "end")}
        specs |= {
            f"x_padded{g}": ArraySpec((padded, k), "f32"),
            f"y_padded{g}": ArraySpec((padded, n), "f32"),
        }
    if case.variant == "single":
        specs |= {f"x{i}": ArraySpec((int(length), k), "f32") for i, length in enumerate(each)}
        specs |= {f"y{i}": ArraySpec((int(length), n), "f32") for i, length in enumerate(each)}
    return specs


def passes(case: Case) -> list[Pass]:
    """The launches of one call."""
    k, n, each, specs = case["k"], case["n"], lengths(case), _specs(case)

    def product(x: str, y: str) -> Pass:
        return Pass("gemm_f32_packed", f"{x} packed -> {y}", 2 * specs[x].shape[0] * k * n)

    if case.variant == "packed":
        return [product("x", "y")]
    if case.variant == "single":
        return [product(f"x{i}", f"y{i}") for i in range(len(each))]
    made = []
    for g, members in enumerate(groups(case.variant, each)):
        real = int(each[members].sum())
        taken, given = {"x": 4 * real * k}, {f"y_padded{g}": 4 * real * n, "y": 4 * real * n}
        made += [
            Pass("pad_rows", f"x first{g} end{g} -> x_padded{g}", 0, touched=taken),
            product(f"x_padded{g}", f"y_padded{g}"),
            Pass("unpad_rows", f"y_padded{g} first{g} end{g} -> y", 0, touched=given),
        ]
    return made


def make_inputs(case: Case) -> Arrays:
    """x [rows, k] and w [k, n], f32; start [sequences + 1], i32: the first row of each sequence, and the end."""
    return {**_products.product_inputs(case, "f32", rows="rows"), "start": _ragged.starts(lengths(case))}


def outputs(case: Case) -> dict[str, ArraySpec]:
    """y [rows, n], f32."""
    return {"y": _specs(case)["y"]}


def reference(case: Case, inputs: Arrays) -> Arrays:
    """float64: what the padding is for doesn't show in the result."""
    return {"y": inputs["x"].astype(np.float64) @ inputs["w"].astype(np.float64)}


def bind_cpu(case: Case, inputs: Arrays, outputs: Arrays) -> Callable[[], None]:
    """Weights are packed here, once, and sequences sorted into buckets."""
    start, arrays = inputs["start"], {"x": inputs["x"], **outputs}
    arrays["packed"] = _products.pack(inputs["w"], "f32")
    for g, members in enumerate(groups(case.variant, np.diff(start))):
        arrays[f"first{g}"] = aligned_copy(start[:-1][members], "i32")
        arrays[f"end{g}"] = aligned_copy(start[1:][members], "i32")
    if case.variant == "single":
        for i, (first, end) in enumerate(pairwise(start)):
            arrays |= {f"x{i}": inputs["x"][first:end], f"y{i}": outputs["y"][first:end]}
    return _passes.bind(passes(case), _specs(case), arrays)


def cost(case: Case) -> Cost:
    return _passes.cost(passes(case), _specs(case))


def ideal_bytes(case: Case) -> int:
    """The real rows and the weight read once, the result written once."""
    return 4 * (case["rows"] * (case["k"] + case["n"]) + case["k"] * case["n"])


def tolerance(case: Case) -> Tolerance:
    return _products.product_tolerance(case["k"], "f32", "f32")


def supports(case: Case) -> str:
    """Sequences of such lengths must exist."""
    return _ragged.impossible(case["sequences"], case["rows"], case["longest"])


def _sizes(*sizes: tuple[int, int, int, int, int]) -> list[dict[str, int | str]]:
    names = ("sequences", "rows", "longest", "k", "n")
    return [dict(zip(names, size, strict=True)) for size in sizes]


MECHANISM = Mechanism(
    name="batching",
    question="What do rows cost that mean nothing, and batches that hold one sequence?",
    claims=("A8", "A15", "B9", "B18"),
    variants=dict.fromkeys(("bucketed", "packed", "padded", "single"), ("cpu", "cuda", "triton")),
    standard="bucketed",
    flash="padded",
    dtypes=("f32",),
    test_sizes=_sizes((1, 1, 1, 1, 1), (3, 11, 7, 20, 36), (5, 40, 19, 19, 33), (4, 100, 70, 8, 12)),
    bench_sizes=_sizes(
        (32, 1024, 128, 192, 576),
        (8, 64, 16, 512, 512),
        (1, 64, 64, 192, 576),
        (64, 2048, 64, 192, 576),
    ),
    gpu_bench_sizes=_sizes((64, 32768, 2048, 1024, 1024), (64, 1024, 64, 1024, 1024)),
    make_inputs=make_inputs,
    outputs=outputs,
    reference=reference,
    cost=cost,
    ideal_bytes=ideal_bytes,
    tolerance=tolerance,
    bind={"cpu": bind_cpu, "cuda": binder("cuda", "batching"), "triton": binder("triton", "batching")},
    supports=supports,
)
