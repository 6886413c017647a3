"""What quantization launches on CUDA: rounding, an int8 product, dequantisation (csrc/cuda/quantization.cu).

x[m,k] (f32, f16 or bf16), w[k,n] int8, w_scale[n] f32 -> y[m,n] in the type of x: y = x_scale w_scale (q w).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from flashperf.cuda import launcher, precision
from flashperf.cuda.launcher import ceil_div
from flashperf.emulator import Launch
from flashperf.mechanisms.quantization import quantize_columns, static_scale
from flashperf.records import Arrays, Case

#: Variant -> (product, scales of x, whether the product's epilogue dequantises).
VARIANTS = {
    "plain": ("plain", "dynamic", False),
    "int8_dp4a": ("dp4a", "dynamic", False),
    "int8_dynamic": ("imma", "dynamic", False),
    "int8_dynamic_fused": ("imma", "dynamic", True),
    "int8_static": ("imma", "static", True),
    "int8_static_split": ("imma", "static", False),
}

_ROW_THREADS = 256
_IMMA_SHARED_BYTES = 4 * (8192 + 8192)  # stages x (A + B): csrc/cuda/gemm_mma.cuh
#: Product -> threads of a block, columns and rows of y per block, shared bytes, what k must be a multiple of.
_PRODUCTS: dict[str, tuple[tuple[int, ...], tuple[int, int], int, int]] = {
    "plain": ((32, 8), (32, 8), 0, 1),
    "dp4a": ((256,), (64, 64), 0, 4),
    "imma": ((128,), (128, 128), _IMMA_SHARED_BYTES, 16),
}


def product(kind: str, q: Any, w_t: Any, args: tuple[Any, ...], epilogue: str = "") -> Launch:
    """The int8 product q[m,k] w_t[n,k]: kind ``plain``, ``dp4a`` or ``imma``; ``args`` follow q and w_t."""
    (m, k), n = q.shape, w_t.shape[0]
    block, (tile_columns, tile_rows), shared_bytes, multiple = _PRODUCTS[kind]
    suffix = "_any_size" if k % multiple else ""
    grid = (ceil_div(n, tile_columns), ceil_div(m, tile_rows))
    sizes = (np.int32(m), np.int32(k), np.int32(n))
    return Launch(f"gemm_{kind}{epilogue}{suffix}", grid, block, (q, w_t, *args, *sizes), shared_bytes)


def launches(variant: str, dtype: str, arrays: Mapping[str, Any], static_scale: float) -> list[Launch]:
    """The launches on x, w_t[n,k], w_scale, y and the scratch q, x_scale and (unless fused) acc."""
    kind, scales, fused = VARIANTS[variant]
    x, w_t, w_scale, y = (arrays[name] for name in ("x", "w_t", "w_scale", "y"))
    q, x_scale = arrays["q"], arrays["x_scale"]
    (m, k), n = x.shape, w_t.shape[0]
    args = (x, q, x_scale, np.int32(k)) + ((np.float32(static_scale),) if scales == "static" else ())
    quantize = Launch(f"quantize_{scales}_{dtype}", (m,), (_ROW_THREADS,), args)
    if fused:
        return [quantize, product(kind, q, w_t, (x_scale, w_scale, y), f"_dequantize_{dtype}")]
    acc = arrays["acc"]
    grid = (m, ceil_div(n, _ROW_THREADS))
    dequantize = Launch(f"dequantize_{dtype}", grid, (_ROW_THREADS,), (acc, x_scale, w_scale, y, np.int32(n)))
    return [quantize, product(kind, q, w_t, (acc,)), dequantize]


def scratch(variant: str, x: np.ndarray, w: np.ndarray) -> Arrays:
    """What lies between the kernels, and the weight transposed: it is prepared once, as the CPU packs it."""
    (m, k), n = x.shape, w.shape[1]
    made: Arrays = {
        "w_t": np.ascontiguousarray(w.T),
        "q": np.full((m, k), -1, np.int8),
        "x_scale": np.full(m, np.nan, np.float32),
    }
    if not VARIANTS[variant][2]:
        made["acc"] = np.full((m, n), -1, np.int32)
    return made


def bind_cuda(case: Case, inputs: Arrays, outputs: Arrays) -> launcher.EmulatedCall | launcher.GpuCall:
    """Bind a case: inputs x and w in f32, output y; the weight is quantised here, once.

    ``f32`` is the product without any of it, from the kernels of precision.
    """
    if case.variant == "f32":
        operands = {name: inputs[name] for name in ("x", "w")}
        return launcher.bind(
            "precision", lambda arrays: precision.launches("f32", "f32", arrays), operands, outputs
        )
    values, scale = quantize_columns(inputs["w"])
    known = static_scale(case)
    return launcher.bind(
        "quantization",
        lambda arrays: launches(case.variant, case.dtype, arrays, known),
        {"x": inputs["x"], "w_scale": scale},
        outputs,
        scratch(case.variant, inputs["x"], values),
    )
