"""What precision launches on CUDA: x[m,k] w[k,n] -> y[m,n] in four types (csrc/cuda/precision.cu)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from flashperf.cuda import launcher
from flashperf.cuda.launcher import ceil_div
from flashperf.dtypes import cast as cast_array
from flashperf.emulator import Launch
from flashperf.records import Arrays, Case

#: Variant -> the type of its products; casts around them where the operands are kept in another type.
VARIANTS = ("plain", "f32", "tf32", "f16", "bf16", "wmma_f16", "wmma_bf16", "cast_churn")

_BLOCK_TILE = 128  # rows and columns of y per block, in every pipelined kernel
_F32_SHARED_BYTES = 3 * (8192 + 8192)  # stages x (A + B): gemm_ffma.cuh
_MMA_SHARED_BYTES = 4 * (8192 + 8192)  # gemm_mma.cuh
_CAST_THREADS = 256


def product(kind: str, x: Any, w: Any, y: Any) -> Launch:
    """One product: kind ``f32``, ``tf32``, ``f16``, ``bf16``, ``plain_<type>`` or ``wmma_<type>``."""
    (m, k), n = x.shape, w.shape[1]
    args = (x, w, y, np.int32(m), np.int32(k), np.int32(n))
    if kind.startswith("plain_"):
        return Launch(f"gemm_{kind}", (ceil_div(n, 32), ceil_div(m, 8)), (32, 8), args)
    if kind.startswith("wmma_"):
        if m % 16 or k % 16 or n % 16:
            raise ValueError(f"the WMMA product takes multiples of 16, not m={m} k={k} n={n}")
        return Launch(f"gemm_{kind}", (ceil_div(n, 128), m // 16), (256,), args)
    per_chunk = 16 // x.dtype.itemsize
    suffix = "" if k % per_chunk == 0 and n % per_chunk == 0 else "_any_size"
    grid = (ceil_div(n, _BLOCK_TILE), ceil_div(m, _BLOCK_TILE))
    if kind == "f32":
        return Launch(f"gemm_f32{suffix}", grid, (256,), args, _F32_SHARED_BYTES)
    return Launch(f"gemm_{kind}{suffix}", grid, (128,), args, _MMA_SHARED_BYTES)


def cast(source: str, target: str, x: Any, y: Any) -> Launch:
    """Convert every element of ``x`` into ``y``, ``f32`` from or to ``f16`` or ``bf16``."""
    grid = (ceil_div(x.size, 4 * _CAST_THREADS),)
    return Launch(f"cast_{source}_{target}", grid, (_CAST_THREADS,), (x, y, np.int64(x.size)))


def launches(variant: str, dtype: str, arrays: Mapping[str, Any]) -> Sequence[Launch]:
    """The launches of a variant on x, w, y, and for ``cast_churn`` also x_cast, w_cast, y_cast (bf16).

    ``dtype`` is the type of x, w and y: f32 for ``f32``, ``tf32`` and ``cast_churn``; ``plain`` takes any.
    """
    x, w, y = arrays["x"], arrays["w"], arrays["y"]
    if variant == "plain":
        return [product(f"plain_{dtype}", x, w, y)]
    if variant != "cast_churn":
        return [product(variant, x, w, y)]
    x_cast, w_cast, y_cast = arrays["x_cast"], arrays["w_cast"], arrays["y_cast"]
    return [
        cast("f32", "bf16", x, x_cast),
        cast("f32", "bf16", w, w_cast),
        product("bf16", x_cast, w_cast, y_cast),
        cast("bf16", "f32", y_cast, y),
    ]


def scratch(variant: str, inputs: Arrays, outputs: Arrays) -> Arrays:
    """The memory that ``cast_churn`` converts into."""
    if variant != "cast_churn":
        return {}
    named = {"x": inputs["x"], "w": inputs["w"], "y": outputs["y"]}
    return {f"{name}_cast": np.full(array.shape, 0xFFFF, np.uint16) for name, array in named.items()}


def format_of(variant: str) -> str:
    """What x, w and y of a variant are stored in."""
    return variant.removeprefix("wmma_") if variant.endswith("f16") else "f32"


def bind_cuda(case: Case, inputs: Arrays, outputs: Arrays) -> launcher.EmulatedCall | launcher.GpuCall:
    """Bind a case: inputs x and w in f32, output y in the variant's format.

    A 16-bit variant converts its operands here, once; ``cast_churn`` does it in every call.
    """
    kept = format_of(case.variant)
    operands = {name: cast_array(inputs[name], kept) for name in ("x", "w")}
    return launcher.bind(
        "precision",
        lambda arrays: launches(case.variant, kept, arrays),
        operands,
        outputs,
        scratch(case.variant, operands, outputs),
    )
