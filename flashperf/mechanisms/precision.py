"""Precision: what does a matrix product gain from a shorter format, and what do casts around it cost?

- f32: weights packed once, everything in binary32
- bf16, f16: operands and result kept in the short format, sums in f32; the CPU decides what that gains
- cast_churn: f32 in memory; operands and weights are cast to bf16 before each product and the result back after it.
  This is what ``torch.autocast`` does in inference: its cache of cast weights holds only leaves that require
  gradients (``cached_cast`` in ATen's autocast_mode)
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from flashperf.dtypes import aligned_copy
from flashperf.mechanisms import _passes, _products
from flashperf.mechanisms._passes import Pass
from flashperf.records import Arrays, ArraySpec, Case, Cost, Mechanism, Tolerance


def _formats(case: Case) -> tuple[str, str]:
    """What is multiplied, and what the result is stored in."""
    return {"f32": ("f32", "f32"), "cast_churn": ("bf16", "f32")}.get(
        case.variant, (case.variant, case.variant)
    )


def _specs(case: Case) -> dict[str, ArraySpec]:
    m, k, n = case["m"], case["k"], case["n"]
    product, stored = _formats(case)
    return {
        "x": ArraySpec((m, k), "f32"),
        "w": ArraySpec((k, n), "f32"),
        "x_short": ArraySpec((m, k), product),
        "w_short": ArraySpec((k, n), product),
        "y_short": ArraySpec((m, n), product),
        "packed": _products.packed_spec(k, n, product),
        "y": ArraySpec((m, n), stored),
    }


def passes(case: Case) -> list[Pass]:
    """The launches of one call."""
    flops = 2 * case["m"] * case["k"] * case["n"]
    product, _ = _formats(case)
    if case.variant == "cast_churn":
        return [
            Pass("cast_f32_bf16", "x -> x_short", 0, flat=True),
            Pass("cast_f32_bf16", "w -> w_short", 0, flat=True),
            Pass("gemm_bf16_blocked", "x_short w_short -> y_short", flops),
            Pass("cast_bf16_f32", "y_short -> y", 0, flat=True),
        ]
    return [Pass(f"gemm_{product}_packed", "x_short packed -> y", flops)]


def make_inputs(case: Case) -> Arrays:
    """x [m, k] and w [k, n], f32."""
    return _products.product_inputs(case, "f32")


def outputs(case: Case) -> dict[str, ArraySpec]:
    """y [m, n], stored as the variant stores it."""
    return {"y": _specs(case)["y"]}


def reference(case: Case, inputs: Arrays) -> Arrays:
    """float64 product of the f32 operands: the error of a short format counts its rounding of them."""
    return {"y": inputs["x"].astype(np.float64) @ inputs["w"].astype(np.float64)}


def bind_cpu(case: Case, inputs: Arrays, outputs: Arrays) -> Callable[[], None]:
    """Weights are converted and packed here, once, but by cast_churn, whose point is that it does so every call."""
    arrays = {**inputs, **outputs}
    if case.variant != "cast_churn":
        product, _ = _formats(case)
        arrays["x_short"] = aligned_copy(inputs["x"], product)
        arrays["packed"] = _products.pack(aligned_copy(inputs["w"], product), product)
    return _passes.bind(passes(case), _specs(case), arrays)


def cost(case: Case) -> Cost:
    return _passes.cost(passes(case), _specs(case))


def ideal_bytes(case: Case) -> int:
    """Every operand read once, the result written once, in the variant's formats."""
    specs = _specs(case)
    return sum(_passes.size_bytes(specs[name]) for name in ("x_short", "w_short", "y"))


def tolerance(case: Case) -> Tolerance:
    product, stored = _formats(case)
    return _products.product_tolerance(
        case["k"], product, product if case.variant == "cast_churn" else stored
    )


MECHANISM = Mechanism(
    name="precision",
    question="What does a shorter format gain a matrix product, and what do casts around it cost?",
    claims=("A5", "B15", "A19"),
    variants={"f32": ("cpu",), "bf16": ("cpu",), "f16": ("cpu",), "cast_churn": ("cpu",)},
    standard="f32",
    flash="cast_churn",
    dtypes=("f32",),
    test_sizes=({"m": 1, "k": 1, "n": 1}, {"m": 5, "k": 37, "n": 33}, {"m": 17, "k": 96, "n": 130}),
    bench_sizes=({"m": 1, "k": 1024, "n": 1024}, {"m": 128, "k": 512, "n": 512}),
    make_inputs=make_inputs,
    outputs=outputs,
    reference=reference,
    cost=cost,
    ideal_bytes=ideal_bytes,
    tolerance=tolerance,
    bind={"cpu": bind_cpu},
)
