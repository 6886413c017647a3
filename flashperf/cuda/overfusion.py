"""What overfusion launches on CUDA: a SwiGLU MLP in five kernels, two or one (csrc/cuda/overfusion.cu).

x[m,d], gate[d,f], up[d,f], down[f,d] -> y[m,d], all of one dtype.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from flashperf.cuda import launcher
from flashperf.cuda.launcher import ceil_div
from flashperf.emulator import Launch
from flashperf.records import Arrays, Case

VARIANTS = ("fused", "split", "over")

_TILE = 128  # rows and columns of a result per block of the tiled products
_THREADS = 256
_MAX_SHARED_BYTES = 227 << 10  # of a block, on sm_90 and sm_100
_F32_SHARED_BYTES = 3 * (8192 + 8192)  # stages x (A + B): csrc/cuda/gemm_ffma.cuh
_MMA_SHARED_BYTES = 4 * (8192 + 8192)  # csrc/cuda/gemm_mma.cuh


def _over_shared_bytes(dtype: str, d: int, f: int) -> int:
    """What a block of ``over`` holds: its rows of x and of the hidden activations."""
    return (8 * 4 if dtype == "f32" else 16 * 2) * (d + f)


def why_not(variant: str, dtype: str, d: int, f: int) -> str:
    """Empty if the variant takes these sizes, else the reason."""
    if variant != "over":
        return ""
    if dtype != "f32" and (d % 16 or f % 16):
        return "the over-fused MLP on Tensor Cores takes sizes that are multiples of 16"
    results_bytes = 0 if dtype == "f32" else 8 * 16 * 16 * 4
    if _over_shared_bytes(dtype, d, f) + results_bytes > _MAX_SHARED_BYTES:
        return f"d + f = {d + f} does not fit the shared memory of one block"
    return ""


def _tiled(name: str, dtype: str, columns: int, args: tuple[Any, ...]) -> Launch:
    """A tiled product; its first argument has m rows of k, its last two array arguments set n."""
    (m, k), n = args[0].shape, args[1].shape[1]
    per_chunk = 16 // args[0].dtype.itemsize
    suffix = "" if k % per_chunk == 0 and n % per_chunk == 0 else "_any_size"
    grid = (ceil_div(n, columns), ceil_div(m, _TILE))
    threads, shared_bytes = (256, _F32_SHARED_BYTES) if dtype == "f32" else (128, _MMA_SHARED_BYTES)
    sizes = (np.int32(m), np.int32(k), np.int32(n))
    return Launch(f"{name}_{dtype}{suffix}", grid, (threads,), (*args, *sizes), shared_bytes)


def gate_up(dtype: str, x: Any, gate: Any, up: Any, h: Any) -> Launch:
    """h[m,f] = silu(x gate) * (x up), in one kernel."""
    return _tiled("gate_up", dtype, _TILE // 2, (x, gate, up, h))


def launches(variant: str, dtype: str, arrays: Mapping[str, Any]) -> list[Launch]:
    """The launches of a variant; ``split`` needs the scratch g, u, s and h [m,f], ``fused`` h."""
    x, gate, up, down, y = (arrays[name] for name in ("x", "gate", "up", "down", "y"))
    (m, d), f = x.shape, gate.shape[1]
    if reason := why_not(variant, dtype, d, f):
        raise ValueError(reason)
    if variant == "over":
        rows = 8 if dtype == "f32" else 16
        args = (x, gate, up, down, y, np.int32(m), np.int32(d), np.int32(f))
        shared_bytes = _over_shared_bytes(dtype, d, f)
        return [Launch(f"mlp_over_{dtype}", (ceil_div(m, rows),), (_THREADS,), args, shared_bytes)]
    h = arrays["h"]
    last = _tiled("product", dtype, _TILE, (h, down, y))
    if variant == "fused":
        return [gate_up(dtype, x, gate, up, h), last]
    g, u, s = arrays["g"], arrays["u"], arrays["s"]
    count, grid = np.int64(g.size), (ceil_div(g.size, _THREADS),)
    return [
        _tiled("product", dtype, _TILE, (x, gate, g)),
        _tiled("product", dtype, _TILE, (x, up, u)),
        Launch(f"silu_{dtype}", grid, (_THREADS,), (g, s, count)),
        Launch(f"multiply_{dtype}", grid, (_THREADS,), (s, u, h, count)),
        last,
    ]


def scratch(variant: str, inputs: Arrays) -> Arrays:
    """The hidden activations that go through memory."""
    names = {"split": "gush", "fused": "h", "over": ""}[variant]
    shape = (inputs["x"].shape[0], inputs["gate"].shape[1])
    return {name: np.zeros(shape, inputs["x"].dtype) for name in names}


def bind_cuda(case: Case, inputs: Arrays, outputs: Arrays) -> launcher.EmulatedCall | launcher.GpuCall:
    """Bind a case: inputs x, weight_gate, weight_up, weight_down, output y. Raises ValueError as why_not says."""
    named = {name.removeprefix("weight_"): array for name, array in inputs.items()}
    return launcher.bind(
        "overfusion",
        lambda arrays: launches(case.variant, case.dtype, arrays),
        named,
        outputs,
        scratch(case.variant, named),
    )
