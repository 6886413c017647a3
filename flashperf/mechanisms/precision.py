"""Precision: what does a matrix product gain from a shorter format, and what do casts around it cost?

- f32: weights packed once, everything in binary32
- bf16, f16: operands and result kept in the short format, sums in f32; the CPU decides what that gains
- cast_churn: f32 in memory; operands and weights are cast to bf16 before each product and the result back after it.
  This is what ``torch.autocast`` does in inference: its cache of cast weights holds only leaves that require
  gradients (``cached_cast`` in ATen's autocast_mode)

With CUDA f32 is computed by the FMA units, bf16 and f16 by Tensor Cores, and there are:

- tf32: f32 in memory, rounded to 11 bits of significand on the way into the Tensor Cores
- wmma_f16, wmma_bf16: Tensor Cores through the warp-matrix interface, no tiles in shared memory
- plain: f32, one element of y per thread

With Triton tf32 is there too, and:

- fp8: e4m3 operands, each scaled as a whole so that its largest magnitude is the format's; the result in bf16
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable

import numpy as np

from flashperf.backends import driver_missing
from flashperf.dtypes import aligned_copy
from flashperf.mechanisms import _passes, _products
from flashperf.mechanisms._elsewhere import binder
from flashperf.mechanisms._passes import Pass
from flashperf.records import Arrays, ArraySpec, Case, Cost, Mechanism, Tolerance

#: variant -> what its operands are rounded to, what they lie in memory as when they are multiplied, its result
_FORMATS = {
    "f32": ("f32", "f32", "f32"),
    "bf16": ("bf16", "bf16", "bf16"),
    "f16": ("f16", "f16", "f16"),
    "cast_churn": ("bf16", "bf16", "f32"),
    "tf32": ("tf32", "f32", "f32"),
    "wmma_f16": ("f16", "f16", "f16"),
    "wmma_bf16": ("bf16", "bf16", "bf16"),
    "plain": ("f32", "f32", "f32"),
    "fp8": ("e4m3", "e4m3", "bf16"),
}
_CUDA_ONLY = ("wmma_f16", "wmma_bf16", "plain")


def _specs(case: Case) -> dict[str, ArraySpec]:
    m, k, n = case["m"], case["k"], case["n"]
    _, product, stored = _FORMATS[case.variant]
    return {
        "x": ArraySpec((m, k), "f32"),
        "w": ArraySpec((k, n), "f32"),
        "x_short": ArraySpec((m, k), product),
        "w_short": ArraySpec((k, n), product),
        "y_short": ArraySpec((m, n), product),
        "packed": _products.weight_spec(case, k, n, product),
        "y": ArraySpec((m, n), stored),
    }


def passes(case: Case) -> list[Pass]:
    """The launches of one call."""
    flops = 2 * case["m"] * case["k"] * case["n"]
    _, product, _ = _FORMATS[case.variant]
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
        _, product, _ = _FORMATS[case.variant]
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
    rounded, _, stored = _FORMATS[case.variant]
    return _products.product_tolerance(case["k"], rounded, "bf16" if case.variant == "cast_churn" else stored)


def supports(case: Case) -> str:
    """A warp's matrices are 16 x 16 x 16, and this variant has no code for what lies beyond the last one."""
    if case.variant.startswith("wmma") and any(case[size] % 16 for size in "mkn"):
        return "the WMMA product takes sizes that are multiples of 16"
    return _no_fp8() if case.variant == "fp8" else ""


@functools.cache
def _no_fp8() -> str:
    """Products of e4m3 came with sm_89; Triton's interpreter has them on any CPU."""
    if driver_missing() or os.environ.get("TRITON_INTERPRET") == "1":
        return ""
    import torch

    major, minor = torch.cuda.get_device_capability()
    return "" if (major, minor) >= (8, 9) else f"products of e4m3 need sm_89, this GPU is sm_{major}{minor}"


MECHANISM = Mechanism(
    name="precision",
    question="What does a shorter format gain a matrix product, and what do casts around it cost?",
    claims=("A5", "B15", "A19"),
    variants={
        **dict.fromkeys(("f32", "bf16", "f16", "cast_churn"), ("cpu", "cuda", "triton")),
        "tf32": ("cuda", "triton"),
        "fp8": ("triton",),
        **dict.fromkeys(_CUDA_ONLY, ("cuda",)),
    },
    standard="f32",
    flash="cast_churn",
    dtypes=("f32",),
    test_sizes=(
        {"m": 1, "k": 1, "n": 1},
        {"m": 5, "k": 37, "n": 33},
        {"m": 17, "k": 96, "n": 130},
        {"m": 32, "k": 48, "n": 144},
    ),
    bench_sizes=({"m": 1, "k": 1024, "n": 1024}, {"m": 128, "k": 512, "n": 512}),
    gpu_bench_sizes=({"m": 16, "k": 4096, "n": 4096}, {"m": 4096, "k": 4096, "n": 4096}),
    make_inputs=make_inputs,
    outputs=outputs,
    reference=reference,
    cost=cost,
    ideal_bytes=ideal_bytes,
    tolerance=tolerance,
    bind={"cpu": bind_cpu, "cuda": binder("cuda", "precision"), "triton": binder("triton", "precision")},
    supports=supports,
    arithmetic=lambda case: _FORMATS[case.variant][0],
)
