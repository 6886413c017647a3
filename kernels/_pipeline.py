"""What each kernel that the pipeline asks for launches in Triton: its name and tensors in, launches out.

Names, arrays and scalars are those of the CPU kernels (``csrc/cpu``), so a program is lowered once for every backend. A
packed weight is memory of the packed shape that begins with the row-major weight; of INT8 with its transpose.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from flashperf.kernels import _attention_scores, _pipeline_products, _pipeline_rows, attention
from flashperf.kernels._elementwise import binary, by_row, unary
from flashperf.kernels._launch import Launch
from flashperf.kernels._pipeline_products import naive_launch, swiglu_int8_launch
from flashperf.kernels._products import product
from flashperf.kernels.overfusion import gate_up_launch, over_launch
from flashperf.kernels.precision import cast_launch
from flashperf.kernels.quantization import (
    dequantize_launch,
    int8_blocks,
    known_launch,
    rows_launch,
    scaled_launch,
)
from flashperf.kernels.tiling import FMA_SHAPES, SHAPES
from flashperf.suggest import unknown_name

TYPES = ("f32", "f16", "bf16")

Tensors = Sequence[torch.Tensor]
#: A kernel's tensors and scalars -> what is launched.
Builder = Callable[[Tensors, Mapping[str, float]], Launch]


def as_matrix(packed: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """The row-major matrix that the memory of a packed weight begins with."""
    return packed.reshape(-1)[: rows * columns].view(rows, columns)


def _product(x: torch.Tensor, w: torch.Tensor, y: torch.Tensor) -> Launch:
    return product(x, as_matrix(w, x.shape[1], y.shape[1]), y)


def _bad_tile(x: torch.Tensor, w: torch.Tensor, y: torch.Tensor) -> Launch:
    shape = (FMA_SHAPES if x.dtype == torch.float32 else SHAPES)["bad_tile"]
    if x.dtype == torch.int8:  # whose products are 32 deep at least
        shape = shape | {"BLOCK_K": 32}
    return product(x, w, y, blocks=shape)


def _gate_up(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, hidden: torch.Tensor) -> Launch:
    weights = (as_matrix(w, x.shape[1], hidden.shape[1]) for w in (gate, up))
    return gate_up_launch(x, *weights, hidden)


def _mlp_over(a: Tensors, f: int) -> Launch:
    x, gate, up, down, y = a
    d = x.shape[1]
    weights = {"gate": as_matrix(gate, d, f), "up": as_matrix(up, d, f), "down": as_matrix(down, f, d)}
    return over_launch({"x": x, "y": y, **weights})


def _copy(source: torch.Tensor, target: torch.Tensor) -> Launch:
    return unary("cast", source, target.reshape(-1)[: source.numel()])


def _rows(kind: str) -> dict[str, Builder]:
    rows = _pipeline_rows
    return {
        f"take_rows_{kind}": lambda a, s: rows.take_launch(*a),
        f"embed_{kind}": lambda a, s: rows.take_launch(a[1], a[0], a[2]),
        f"rope_append_{kind}": lambda a, s: rows.rope_launch(*a),
        f"rmsnorm_{kind}": lambda a, s: rows.norm_launch(tuple(a), s["eps"]),
        f"residual_rmsnorm_{kind}": lambda a, s: rows.norm_launch(tuple(a), s["eps"]),
        f"accumulate_{kind}": lambda a, s: rows.flat("add", a[0], a[1], a[0]),
        f"multiply_{kind}": lambda a, s: rows.flat("multiply", *a),
        f"swiglu_{kind}": lambda a, s: rows.swiglu_launch(*a),
        f"square_{kind}": lambda a, s: unary("square", *a),
        f"silu_{kind}": lambda a, s: unary("silu", *a),
        f"rsqrt_eps_{kind}": lambda a, s: unary("rsqrt", a[0], a[1], s["eps"]),
        f"row_mean_{kind}": lambda a, s: by_row("mean", *a),
        f"scale_rows_{kind}": lambda a, s: binary("multiply", *a, "row"),
        f"scale_cols_{kind}": lambda a, s: binary("multiply", *a, "column"),
    }


def _products(kind: str) -> dict[str, Builder]:
    return {
        f"pack_{kind}": lambda a, s: _copy(*a),
        f"gemm_{kind}_packed": lambda a, s: _product(*a),
        f"gemm_{kind}_blocked": lambda a, s: _product(*a),
        f"gemm_{kind}_bad_tile": lambda a, s: _bad_tile(*a),
        f"gemm_{kind}_naive": lambda a, s: naive_launch(*a),
        f"gemm_swiglu_{kind}_packed": lambda a, s: _gate_up(*a),
        f"mlp_over_{kind}": lambda a, s: _mlp_over(a, int(s["f"])),
    }


def _int8_weight(packed: torch.Tensor, k: int, n: int) -> torch.Tensor:
    """w[k,n] as a view of its transpose."""
    return as_matrix(packed, n, k).t()


def _dequantized_product(a: Tensors) -> Launch:
    q, packed, _, x_scale, w_scale, y = a
    return scaled_launch(q, _int8_weight(packed, q.shape[1], y.shape[1]), (x_scale, w_scale), y)


def _swiglu_i8(a: Tensors) -> Launch:
    q, gate, _, up, _, x_scale, gate_scale, up_scale, hidden = a
    weights = tuple(_int8_weight(w, q.shape[1], hidden.shape[1]) for w in (gate, up))
    return swiglu_int8_launch(q, weights, (x_scale, gate_scale, up_scale), hidden, "i8")


def _swiglu_w8(kind: str, a: Tensors) -> Launch:
    x, gate, gate_scale, up, up_scale, hidden = a
    weights = tuple(as_matrix(w, x.shape[1], hidden.shape[1]) for w in (gate, up))
    return swiglu_int8_launch(x, weights, (gate_scale, gate_scale, up_scale), hidden, kind)


def _weight_only(kind: str, a: Tensors) -> Launch:
    x, w, scale, y = a
    return scaled_launch(x, as_matrix(w, x.shape[1], y.shape[1]), (scale, scale), y, kind)


def _mlp_over_i8(a: Tensors, f: int) -> Launch:
    x, gate, _, gate_scale, up, _, up_scale, down, _, down_scale, y = a
    arrays = (x, gate, gate_scale, up, up_scale, down, down_scale, y)
    return _pipeline_products.whole_mlp_int8_launch(arrays, f)


def _int8(kind: str) -> dict[str, Builder]:
    return {
        f"quantize_rows_{kind}": lambda a, s: rows_launch(*a),
        f"quantize_rows_static_{kind}": lambda a, s: known_launch(a[0], a[1], s["scale"]),
        f"dequantize_{kind}": lambda a, s: dequantize_launch(*a),
        f"dequantize_weight_{kind}": lambda a, s: binary("multiply", *a, "column"),
        f"gemm_i8_packed_dequant_{kind}": lambda a, s: _dequantized_product(a),
        f"gemm_swiglu_i8_packed_{kind}": lambda a, s: _swiglu_i8(a),
        f"gemm_w8_packed_{kind}": lambda a, s: _weight_only(kind, a),
        f"gemm_swiglu_w8_packed_{kind}": lambda a, s: _swiglu_w8(kind, a),
        f"mlp_over_i8_{kind}": lambda a, s: _mlp_over_i8(a, int(s["f"])),
    }


def _int8_product(q: torch.Tensor, packed: torch.Tensor, sums: Any, total: torch.Tensor) -> Launch:
    w = _int8_weight(packed, q.shape[1], total.shape[1])
    return product(q, w, total, blocks=int8_blocks(q.shape[0]))


def _pack_i8(w: torch.Tensor, packed: torch.Tensor, sums: Any) -> Launch:
    """The transpose. The sums of columns correct unsigned products on a CPU; nothing reads them here."""
    return _pipeline_products.transpose_launch(w, as_matrix(packed, w.shape[1], w.shape[0]))


def _attention(kind: str) -> dict[str, Builder]:
    scores, blocks = _attention_scores, attention.blocks_of
    return {
        f"attention_online_{kind}": lambda a, s: attention.online_launch(
            tuple(a), blocks(a[0]), s["scale"], int(s["window"])
        ),
        f"attention_online_masked_{kind}": lambda a, s: attention.online_launch(
            (*a[:4], a[5], a[6]), blocks(a[0], True), s["scale"], mask=a[4]
        ),
        f"attention_scores_{kind}": lambda a, s: scores.scores_launch(tuple(a), blocks(a[0]), s["scale"]),
        f"attention_scores_window_{kind}": lambda a, s: scores.scores_launch(
            (*a[:3], *a[4:]), blocks(a[0]), s["scale"], a[3], int(s["window"])
        ),
        f"attention_values_{kind}": lambda a, s: scores.values_launch(tuple(a), blocks(a[4])),
    }


def _score_pass(step: str) -> Builder:
    return lambda a, s: _attention_scores.pass_launch(step, tuple(a))


def _table() -> dict[str, Builder]:
    table: dict[str, Builder] = {
        "softmax_extent": _score_pass("softmax"),
        "add_mask": _score_pass("add_mask"),
        **{f"scores_{step}": _score_pass(step) for step in ("max", "sum", "subtract_exp", "divide")},
        "pack_w8": lambda a, s: _copy(*a),
        "pack_i8": lambda a, s: _pack_i8(*a),
        "gemm_i8_packed": lambda a, s: _int8_product(*a),
        "gemm_i8_naive": lambda a, s: naive_launch(*a),
        "gemm_i8_bad_tile": lambda a, s: _bad_tile(*a),
    }
    for kind in TYPES:
        table |= {**_rows(kind), **_products(kind), **_int8(kind), **_attention(kind)}
    for half in ("f16", "bf16"):
        table |= dict.fromkeys((f"cast_f32_{half}", f"cast_{half}_f32"), lambda a, s: cast_launch(*a))
    return table


#: The kernels that a Triton pipeline has, by the names of the CPU's.
KERNELS: dict[str, Builder] = _table()


def launch_of(kernel: str, tensors: Tensors, scalars: Mapping[str, float]) -> Launch:
    """The launch of one of the pipeline's kernels.

    Raises ValueError for a name that isn't one, and for sizes that a kernel doesn't take.
    """
    if kernel not in KERNELS:
        raise ValueError(unknown_name("pipeline kernel in Triton", kernel, KERNELS))
    return KERNELS[kernel](tensors, scalars)
