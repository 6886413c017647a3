"""What each kernel that the pipeline asks for launches on CUDA: its name and arrays in, launches out.

Names, arrays and scalars are those of the CPU kernels (``csrc/cpu``), so a program is lowered once for every
backend. Nothing here says where the arrays lie.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from flashperf.cuda import pipeline_attention, precision
from flashperf.cuda.launcher import ceil_div
from flashperf.cuda.pipeline_products import int8_only, int8_products, products
from flashperf.cuda.pipeline_steps import Arrays, Builder, Step, i32, wide_suffix
from flashperf.emulator import Launch
from flashperf.suggest import unknown_name

TYPES = ("f32", "f16", "bf16")
_THREADS = 256
_FLAT = ("accumulate", "square", "silu", "multiply", "swiglu")
_SCORE_PASSES = ("add_mask", "scores_max", "scores_sum", "scores_subtract_exp", "scores_divide")
_BY_ROW = ("row_mean", "scale_rows", "scale_cols")


def _take_rows(kind: str, x: Any, index: Any, y: Any) -> list[Step]:
    args = (x, index, y, *i32(*x.shape))
    return [Step("pipeline", Launch(f"take_rows_{kind}", (y.shape[0],), (_THREADS,), args))]


def _rope_append(kind: str, arrays: Arrays) -> list[Step]:
    keys = arrays[5]
    slots, heads, t, e = keys.shape
    threads = min(_THREADS, 32 * ceil_div(e // 2, 32))
    args = (*arrays, *i32(slots, heads, t, e))
    return [Step("pipeline", Launch(f"rope_append_{kind}", (arrays[0].shape[0], heads), (threads,), args))]


def _norm(kernel: str, kind: str, arrays: Arrays, eps: float) -> list[Step]:
    rows, cols = arrays[0].shape
    name = f"{kernel}_{kind}{wide_suffix(cols * arrays[0].dtype.itemsize)}"
    return [Step("pipeline", Launch(name, (rows,), (_THREADS,), (*arrays, *i32(cols), np.float32(eps))))]


def _flat(kernel: str, arrays: Arrays) -> list[Step]:
    count = arrays[0].size
    launch = Launch(kernel, (ceil_div(count, _THREADS),), (_THREADS,), (*arrays, np.int64(count)))
    return [Step("pipeline", launch)]


def _by_row(kernel: str, arrays: Arrays, *scalars: np.generic) -> list[Step]:
    """A pass over x[rows,cols]: a row per block, or a row of blocks per row."""
    rows, cols = (1, *arrays[0].shape)[-2:]
    args = (*arrays, np.int32(cols), *scalars)
    if kernel.startswith("row_"):
        return [Step("pipeline", Launch(kernel, (rows,), (_THREADS,), args))]
    threads = min(_THREADS, 32 * ceil_div(cols, 32))
    return [Step("pipeline", Launch(kernel, (rows, ceil_div(cols, threads)), (threads,), args))]


def _named(function: Callable[[str, Arrays], list[Step]], kernel: str) -> Builder:
    return lambda a, s: function(kernel, a)


def _rows(kind: str) -> dict[str, Builder]:
    return {
        f"take_rows_{kind}": lambda a, s: _take_rows(kind, *a),
        f"embed_{kind}": lambda a, s: _take_rows(kind, a[1], a[0], a[2]),
        f"rope_append_{kind}": lambda a, s: _rope_append(kind, a),
        f"rmsnorm_{kind}": lambda a, s: _norm("rmsnorm", kind, a, s["eps"]),
        f"residual_rmsnorm_{kind}": lambda a, s: _norm("residual_rmsnorm", kind, a, s["eps"]),
        f"rsqrt_eps_{kind}": lambda a, s: _by_row(f"rsqrt_eps_{kind}", a, np.float32(s["eps"])),
        **{f"{stem}_{kind}": _named(_flat, f"{stem}_{kind}") for stem in _FLAT},
        **{f"{stem}_{kind}": _named(_by_row, f"{stem}_{kind}") for stem in _BY_ROW},
        f"pack_{kind}": _named(_flat, f"copy_{kind}"),
    }


def _cast(source: str, target: str) -> Builder:
    return lambda a, s: [Step("precision", precision.cast(source, target, *a))]


def _attention(kind: str) -> dict[str, Builder]:
    """Attention with queries, caches and results of one type; scores are f32."""
    made = pipeline_attention

    def window_scores(a: Arrays, s: Mapping[str, float]) -> list[Step]:
        return _masked(made.scores_window(kind, a, int(s["window"]), s["scale"]))

    def online(a: Arrays, s: Mapping[str, float]) -> list[Step]:
        return [Step("attention", made.online(kind, a, int(s["window"]), s["scale"]))]

    return {
        f"attention_online_{kind}": online,
        f"attention_online_masked_{kind}": lambda a, s: _masked(made.masked(kind, a, s["scale"])),
        f"attention_scores_{kind}": lambda a, s: _masked(made.scores(kind, a, s["scale"])),
        f"attention_scores_window_{kind}": window_scores,
        f"attention_values_{kind}": lambda a, s: _masked(made.values(kind, a)),
    }


def _masked(launch: Launch) -> list[Step]:
    return [Step("pipeline_attention", launch)]


def _score_pass(kernel: str, arrays: Arrays) -> list[Step]:
    return _masked(pipeline_attention.score_pass(kernel, arrays))


def _table() -> dict[str, Builder]:
    table: dict[str, Builder] = {**int8_only(), "softmax_extent": _named(_score_pass, "softmax")}
    table |= {name: _named(_score_pass, name) for name in _SCORE_PASSES}
    for kind in TYPES:
        table |= {**_rows(kind), **products(kind), **int8_products(kind), **_attention(kind)}
    for half in ("f16", "bf16"):
        table |= {f"cast_f32_{half}": _cast("f32", half), f"cast_{half}_f32": _cast(half, "f32")}
    return table


#: The kernels that a CUDA pipeline has, by the names of the CPU's.
KERNELS: dict[str, Builder] = _table()


def steps(kernel: str, arrays: Arrays, scalars: Mapping[str, float]) -> list[Step]:
    """The launches of one of the pipeline's kernels. Raises ValueError for a name that isn't one, and for sizes
    that a kernel doesn't take.
    """
    if kernel not in KERNELS:
        raise ValueError(unknown_name("pipeline kernel on CUDA", kernel, KERNELS))
    return KERNELS[kernel](arrays, scalars)
