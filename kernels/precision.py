"""precision: y = x w in f32, tf32, f16, bf16 and fp8 (e4m3), and in bf16 with casts in memory around it.

A shorter format halves or quarters the bytes and multiplies on faster units; casts around every product read and write
all operands once more, in three more launches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
import triton
import triton.language as tl

from flashperf.kernels import _launch
from flashperf.kernels._launch import Launch, TritonCall, ceil_div
from flashperf.kernels._products import product
from flashperf.records import Arrays, Case

VARIANTS = ("f32", "tf32", "f16", "bf16", "fp8", "cast_churn")
LARGEST_E4M3 = 448.0  # the largest finite e4m3 (OCP 8-bit floating point specification, table 1)

_CAST_BLOCK = 1024


@triton.jit
def cast(x, y, n, BLOCK: tl.constexpr):
    """x[n] -> y[n] in the type of y."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    values = tl.load(x + at, mask=inside).to(tl.float32)
    tl.store(y + at, values.to(y.dtype.element_ty), mask=inside)


def cast_launch(x: torch.Tensor, y: torch.Tensor) -> Launch:
    """Every element of ``x`` converted into ``y``."""
    n = x.numel()
    return Launch(cast, (ceil_div(n, _CAST_BLOCK),), (x, y, n), {"BLOCK": _CAST_BLOCK, "num_warps": 4})


def launches(variant: str, arrays: Mapping[str, torch.Tensor], alpha: float = 1.0) -> Sequence[Launch]:
    """One launch on x[m,k], w[k,n] -> y[m,n]; four for ``cast_churn`` through x_cast, w_cast, y_cast (bf16)."""
    x, w, y = arrays["x"], arrays["w"], arrays["y"]
    if variant != "cast_churn":
        return [product(x, w, y, alpha=alpha, precision="tf32" if variant == "tf32" else "ieee")]
    x_cast, w_cast, y_cast = arrays["x_cast"], arrays["w_cast"], arrays["y_cast"]
    return [
        cast_launch(x, x_cast),
        cast_launch(w, w_cast),
        product(x_cast, w_cast, y_cast),
        cast_launch(y_cast, y),
    ]


def fp8_operands(x: np.ndarray, w: np.ndarray) -> tuple[dict[str, torch.Tensor], float]:
    """x and w in e4m3, each scaled so that its largest magnitude is the format's, and the factor that undoes it.

    w lies transposed in memory: matrix units take 8-bit operands along k alone.
    """
    scales = [float(np.abs(a).max()) / LARGEST_E4M3 or 1.0 for a in (x, w)]
    w_rows = np.ascontiguousarray((w / np.float32(scales[1])).T)
    operands = {
        "x": _launch.to_format(x / np.float32(scales[0]), "e4m3"),
        "w": _launch.to_format(w_rows, "e4m3").t(),
    }
    return operands, scales[0] * scales[1]


def bind_triton(case: Case, inputs: Arrays, outputs: Arrays) -> TritonCall:
    """Bind a case: inputs x and w in f32, output y in the variant's format.

    A shorter format converts its operands here, once; ``cast_churn`` does it in every call.
    """
    x, w = inputs["x"], inputs["w"]
    alpha, temporary = 1.0, {}
    if case.variant == "fp8":
        operands, alpha = fp8_operands(x, w)
    else:
        kept = case.variant if case.variant in ("f16", "bf16") else "f32"
        operands = {name: _launch.to_format(inputs[name], kept) for name in ("x", "w")}
    if case.variant == "tf32":  # wgmma turns 16-bit operands alone
        operands["w"] = _launch.tensor("w", np.ascontiguousarray(w.T)).t()
    if case.variant == "cast_churn":
        shapes = {"x_cast": x.shape, "w_cast": w.shape, "y_cast": outputs["y"].shape}
        temporary = {name: _launch.scratch(shape, "bf16") for name, shape in shapes.items()}
    return _launch.bind(
        lambda arrays: launches(case.variant, arrays, alpha),
        operands, outputs, temporary,
    )  # fmt: skip
