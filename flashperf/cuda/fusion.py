"""What fusion launches on CUDA: four operators, each as one kernel or as passes (csrc/cuda/fusion.cu).

Arrays by operator, all of one dtype, rows x cols unless it says otherwise:
``bias_gelu`` x, bias[cols] -> y; ``softmax`` x -> y; ``swiglu`` gate, up -> y;
``residual_rmsnorm`` x, delta, weight[cols] -> total (x + delta), y.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from flashperf.cuda import launcher
from flashperf.cuda.launcher import ceil_div
from flashperf.dtypes import NUMPY_TYPES
from flashperf.emulator import Launch
from flashperf.records import Arrays, Case

VARIANTS = ("fused", "split")
OPERATORS = ("bias_gelu", "residual_rmsnorm", "softmax", "swiglu")
EPSILON = 1e-5

Step = tuple[str, str, tuple[Any, ...]]

_ROW_THREADS = 256  # kRowThreads
_MAX_ROW_BYTES = 8 * _ROW_THREADS * 16  # kMaxPacks packs of 16 bytes per thread


def why_not(op: str, dtype_bytes: int, cols: int) -> str:
    """Empty if the fused kernel takes rows of this length, else the reason."""
    if op in ("softmax", "residual_rmsnorm") and cols * dtype_bytes > _MAX_ROW_BYTES:
        return f"the fused {op} keeps a row in registers: at most {_MAX_ROW_BYTES // dtype_bytes} columns"
    return ""


def _rmsnorm_passes(dtype: str) -> list[Step]:
    """As LlamaRMSNorm: the middle in f32, between two casts where the arrays are narrower."""
    half = dtype != "f32"
    wide, normal = ("wide", "t0") if half else ("total", "normal")
    steps: list[Step] = [
        (f"add_{dtype}", "total", ("x", "delta")),
        ("square_f32", "squares", (wide,)),
        ("row_mean_f32", "mean", ("squares",)),
        ("rsqrt_eps_f32", "scale", ("mean", np.float32(EPSILON))),
        ("scale_rows_f32", "normal", (wide, "scale")),
        (f"scale_cols_{dtype}", "y", (normal, "weight")),
    ]
    if half:
        steps.insert(1, (f"cast_{dtype}_f32", "wide", ("total",)))
        steps.insert(-1, (f"cast_f32_{dtype}", "t0", ("normal",)))
    return steps


def _passes(op: str, t: str) -> list[Step]:
    """(kernel, output, operands) of every pass: arrays by name, scalars as they are."""
    if op == "residual_rmsnorm":
        return _rmsnorm_passes(t)
    steps: dict[str, list[Step]] = {
        "bias_gelu": [(f"add_cols_{t}", "t0", ("x", "bias")), (f"gelu_{t}", "y", ("t0",))],
        "swiglu": [(f"silu_{t}", "t0", ("gate",)), (f"multiply_{t}", "y", ("t0", "up"))],
        "softmax": [
            (f"row_max_{t}", "r0", ("x",)),
            (f"subtract_rows_{t}", "t0", ("x", "r0")),
            (f"exp_{t}", "t1", ("t0",)),
            (f"row_sum_{t}", "r1", ("t1",)),
            (f"divide_rows_{t}", "y", ("t1", "r1")),
        ],
    }
    return steps[op]


def scratch(op: str, variant: str, dtype: str, rows: int, cols: int) -> Arrays:
    """The intermediate results of the passes: t0, t1 [rows,cols] and r0, r1 [rows], in f32 inside RMSNorm."""
    if variant == "fused":
        return {}
    full, per_row, own = (rows, cols), (rows,), NUMPY_TYPES[dtype]
    known = {"t0": (full, own), "t1": (full, own), "r0": (per_row, own), "r1": (per_row, own)}
    known |= dict.fromkeys(("wide", "squares", "normal"), (full, NUMPY_TYPES["f32"]))
    known |= dict.fromkeys(("mean", "scale"), (per_row, NUMPY_TYPES["f32"]))
    written = {out for _, out, _ in _passes(op, dtype)}
    return {name: np.zeros(shape, kind) for name, (shape, kind) in known.items() if name in written}


def _elementwise(kernel: str, rows: int, cols: int, per_thread: int, args: tuple[Any, ...]) -> Launch:
    """A row per blockIdx.x; a block no wider than the row needs."""
    threads = min(_ROW_THREADS, 32 * ceil_div(ceil_div(cols, per_thread), 32))
    return Launch(kernel, (rows, ceil_div(cols, per_thread * threads)), (threads,), args)


def _split(op: str, dtype: str, arrays: Mapping[str, Any]) -> list[Launch]:
    made = []
    for kernel, out, operands in _passes(op, dtype):
        values = [arrays[v] if isinstance(v, str) else v for v in operands]
        rows, cols = (*values[0].shape, 1)[:2]
        if kernel == "rsqrt_eps_f32":  # one value per row: a single row of them
            rows, cols = 1, values[0].shape[0]
        pointers = [v for v in values if not isinstance(v, np.generic)]
        scalars = [v for v in values if isinstance(v, np.generic)]
        args = (*pointers, arrays[out], np.int32(cols), *scalars)
        if kernel.startswith("row_"):
            made.append(Launch(kernel, (rows,), (_ROW_THREADS,), args))
        else:
            made.append(_elementwise(kernel, rows, cols, 1, args))
    return made


def launches(variant: str, op: str, dtype: str, arrays: Mapping[str, Any]) -> list[Launch]:
    """The launches of one operator: 1 fused; split 2 (bias_gelu, swiglu), 5 (softmax), 6 or 8 (RMSNorm)."""
    if variant == "split":
        return _split(op, dtype, arrays)
    y = arrays["y"]
    rows, cols = y.shape
    itemsize = y.dtype.itemsize
    if reason := why_not(op, itemsize, cols):
        raise ValueError(reason)
    suffix = "" if cols * itemsize % 16 == 0 else "_any_size"
    kernel = f"fused_{op}_{dtype}{suffix}"
    n = np.int32(cols)
    if op == "bias_gelu":
        return [_elementwise(kernel, rows, cols, 16 // itemsize, (arrays["x"], arrays["bias"], y, n))]
    if op == "swiglu":
        return [_elementwise(kernel, rows, cols, 16 // itemsize, (arrays["gate"], arrays["up"], y, n))]
    if op == "softmax":
        return [Launch(kernel, (rows,), (_ROW_THREADS,), (arrays["x"], y, n))]
    args = (arrays["x"], arrays["delta"], arrays["weight"], arrays["total"], y, n, np.float32(EPSILON))
    return [Launch(kernel, (rows,), (_ROW_THREADS,), args)]


def bind_cuda(case: Case, inputs: Arrays, outputs: Arrays) -> launcher.EmulatedCall | launcher.GpuCall:
    """Bind a case: the operator is its size ``op``, the arrays are those of the module's docstring."""
    op = case.text("op")
    return launcher.bind(
        "fusion",
        lambda arrays: launches(case.variant, op, case.dtype, arrays),
        inputs,
        outputs,
        scratch(op, case.variant, case.dtype, *outputs["y"].shape),
    )
