"""Quantization: what does INT8 gain a matrix product, once finding the scales is paid for?

- f32: weights packed once, everything in binary32
- int8_dynamic: each row's absmax found on every call, rows quantised, INT8 product, result scaled back, each a
  kernel of its own (``torch.ao.quantization.quantize_dynamic``, per row instead of per tensor)
- int8_dynamic_fused: the same with the scaling back inside the product
- int8_static: scales known beforehand, from a calibration on other data; the absmax pass is gone
- weight_only: weights in INT8, widened inside the product, activations as they are; no unit multiplies in INT8

With CUDA the product runs on Tensor Cores (IMMA), the weight lies transposed, and there are:

- int8_static_split: as int8_static, with the scaling back as a kernel of its own
- int8_dp4a: as int8_dynamic, the product by dp4a: four multiply-adds an instruction, no Tensor Cores
- plain: as int8_dynamic, an element of the product per thread

With Triton, weight_only rounds x to bf16 for the product.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from flashperf import native
from flashperf.dtypes import aligned_copy, aligned_empty
from flashperf.mechanisms import _passes, _products
from flashperf.mechanisms._elsewhere import binder
from flashperf.mechanisms._passes import Pass
from flashperf.records import Arrays, ArraySpec, Case, Cost, Mechanism, Tolerance

_CUDA_ONLY = ("int8_static_split", "int8_dp4a", "plain")


def _widens(case: Case) -> bool:
    """Whether the CPU's product widens INT8 weights, which then lie in panels without interleaved rows."""
    return case.backend == "cpu" and case.variant == "weight_only"


def _weight_only_spec(k: int, n: int) -> ArraySpec:
    return ArraySpec((-(-n // _products.PANEL), k, _products.PANEL), "i8")


def _specs(case: Case) -> dict[str, ArraySpec]:
    m, k, n = case["m"], case["k"], case["n"]
    return {
        "x": ArraySpec((m, k), "f32"),
        "packed_f32": _products.weight_spec(case, k, n, "f32"),
        "q": ArraySpec((m, k), "i8"),
        "x_scale": ArraySpec((m,), "f32"),
        "packed": _weight_only_spec(k, n) if _widens(case) else _products.weight_spec(case, k, n, "i8"),
        "sums": ArraySpec((n,), "i32"),
        "w_scale": ArraySpec((n,), "f32"),
        "acc": ArraySpec((m, n), "i32"),
        "y": ArraySpec((m, n), "f32"),
    }


def passes(case: Case, static_scale: float = 1.0) -> list[Pass]:
    """The launches of one call. Integer multiply-adds count as two operations."""
    elements, flops = case["m"] * case["k"], 2 * case["m"] * case["k"] * case["n"]
    results = case["m"] * case["n"]
    on_cpu = case.backend == "cpu"
    weights = "packed sums" if on_cpu else "packed"  # the CPU's instruction takes one operand without a sign
    known = {"scale": static_scale}
    dynamic = Pass("quantize_rows_f32", "x -> q x_scale", 3 * elements)
    static = Pass(
        "quantize_rows_static_f32",
        "x -> q x_scale" if case.backend == "cuda" else "x -> q",
        elements,
        scalars=known,
    )
    fused = Pass("gemm_i8_packed_dequant_f32", f"q {weights} x_scale w_scale -> y", flops + 2 * results)
    split = [
        Pass("gemm_i8_packed", f"q {weights} -> acc", flops),
        Pass("dequantize_f32", "acc x_scale w_scale -> y", 2 * results),
    ]
    widening = "gemm_w8_packed_f32" if on_cpu else "gemm_weight_only"
    return {
        "f32": [Pass("gemm_f32_packed", "x packed_f32 -> y", flops)],
        **{name: [dynamic, *split] for name in ("int8_dynamic", "int8_dp4a", "plain")},
        "int8_dynamic_fused": [dynamic, fused],
        "int8_static": [static, fused],
        "int8_static_split": [static, *split],
        "weight_only": [Pass(widening, "x packed w_scale -> y", flops + results)],
    }[case.variant]


def make_inputs(case: Case) -> Arrays:
    """x [m, k] and w [k, n], f32."""
    return _products.product_inputs(case, "f32")


def outputs(case: Case) -> dict[str, ArraySpec]:
    """y [m, n], f32."""
    return {"y": _specs(case)["y"]}


def reference(case: Case, inputs: Arrays) -> Arrays:
    """float64 product of the f32 operands: what quantising costs in accuracy shows as error."""
    return {"y": inputs["x"].astype(np.float64) @ inputs["w"].astype(np.float64)}


def quantize_columns(w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Symmetric INT8 per column of w [k, n]: values i8 [k, n], scale f32 [n] = absmax / 127 (1 for a zero column)."""
    absmax = np.abs(w).max(axis=0)
    scale = np.where(absmax > 0, absmax / np.float32(127), np.float32(1)).astype(np.float32)
    return np.clip(np.rint(w / scale), -127, 127).astype(np.int8), scale


def static_scale(case: Case) -> float:
    """absmax / 127 over inputs of another seed: what a calibration run would have found."""
    other = Case(case.mechanism, case.variant, case.backend, case.dtype, case.sizes, case.seed + 1)
    return float(np.abs(make_inputs(other)["x"]).max() / 127)


def bind_cpu(case: Case, inputs: Arrays, outputs: Arrays) -> Callable[[], None]:
    """Weights are quantised and packed here, once."""
    arrays = {**inputs, **outputs}
    if case.variant == "f32":
        arrays["packed_f32"] = _products.pack(aligned_copy(inputs["w"], "f32"), "f32")
        return _passes.bind(passes(case), _specs(case), arrays)
    values, scale = quantize_columns(inputs["w"])
    values = aligned_copy(values, "i8")
    if _widens(case):
        arrays["packed"] = aligned_empty(_specs(case)["packed"].shape, "i8")
        native.prepare("pack_w8", values, arrays["packed"])()
    else:
        arrays["packed"], arrays["sums"] = _products.pack_i8(values)
    arrays["w_scale"] = aligned_copy(scale, "f32")
    known = static_scale(case)
    if case.variant == "int8_static":
        arrays["x_scale"] = aligned_copy(np.full(case["m"], known, np.float32), "f32")
    return _passes.bind(passes(case, known), _specs(case), arrays)


def cost(case: Case) -> Cost:
    return _passes.cost(passes(case), _specs(case))


def ideal_bytes(case: Case) -> int:
    """x read once, the weights once in their format, y written once."""
    specs = _specs(case)
    weights = "packed_f32" if case.variant == "f32" else "packed"
    return sum(_passes.size_bytes(specs[name]) for name in ("x", weights, "y"))


def tolerance(case: Case) -> Tolerance:
    """INT8 steps are absmax / 127 wide: an SNR, since no bound per element is both safe and sharp."""
    if case.variant == "f32":
        return _products.product_tolerance(case["k"], "f32", "f32")
    # x reaches 4 x 4.5 deviations, w 4.5: errors of half a step, uniform, add to 0.045 and 0.01 of a product. Static
    # scales clip the values beyond the calibration's.
    clipped = 4.0 if case.variant.startswith("int8_static") else 0.5
    return Tolerance(0.05, clipped, "half a step of x's and w's absmax / 127, 8 deviations, outliers", 18.0)


MECHANISM = Mechanism(
    name="quantization",
    question="What does INT8 gain a matrix product, once finding the scales is paid for?",
    claims=("A11",),
    variants={
        **dict.fromkeys(
            ("f32", "int8_dynamic", "int8_dynamic_fused", "int8_static"), ("cpu", "cuda", "triton")
        ),
        "weight_only": ("cpu", "triton"),
        **dict.fromkeys(_CUDA_ONLY, ("cuda",)),
    },
    standard="f32",
    flash="int8_dynamic",
    dtypes=("f32",),
    test_sizes=({"m": 1, "k": 4, "n": 1}, {"m": 5, "k": 67, "n": 33}, {"m": 18, "k": 128, "n": 70}),
    bench_sizes=({"m": 1, "k": 1024, "n": 1024}, {"m": 128, "k": 512, "n": 512}),
    gpu_bench_sizes=({"m": 16, "k": 4096, "n": 4096}, {"m": 4096, "k": 4096, "n": 4096}),
    make_inputs=make_inputs,
    outputs=outputs,
    reference=reference,
    cost=cost,
    ideal_bytes=ideal_bytes,
    tolerance=tolerance,
    bind={
        "cpu": bind_cpu,
        "cuda": binder("cuda", "quantization"),
        "triton": binder("triton", "quantization"),
    },
    arithmetic=lambda case: "i8" if case.variant.startswith("int8") else case.dtype,
)
