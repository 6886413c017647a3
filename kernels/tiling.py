"""tiling: one product under several block shapes, numbers of warps and pipeline stages, and an autotuner over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import triton

from flashperf.kernels import _launch
from flashperf.kernels._launch import Launch, TritonCall
from flashperf.kernels._products import BLOCKS, FMA_BLOCKS, matmul, product
from flashperf.records import Arrays, Case


def _blocks(m: int, n: int, k: int, warps: int, stages: int, group: int = 8) -> dict[str, int]:
    return {
        "BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP": group, "num_warps": warps, "num_stages": stages,
    }  # fmt: skip


#: Variant -> what is launched for 16-bit operands. ``blocked`` is what the others change one thing of.
SHAPES: dict[str, dict[str, int]] = {
    "blocked": dict(BLOCKS),
    "bad_tile": _blocks(16, 16, 16, 1, 1),  # each operand is loaded 8 times as often as by a block of 128
    "wide_block": _blocks(128, 256, 64, 8, 3),  # more sums per loaded operand, fewer programs
    "few_warps": BLOCKS | {"num_warps": 4},  # twice the sums in each thread's registers
    "one_stage": BLOCKS | {"num_stages": 1},  # no load is in flight during a product
    "ungrouped": BLOCKS | {"GROUP": 1},  # programs in flight share no columns of w: L2 misses
}
#: The same for f32 on the FMA units.
FMA_SHAPES: dict[str, dict[str, int]] = {
    "blocked": dict(FMA_BLOCKS),
    "bad_tile": _blocks(16, 16, 16, 1, 1),
    "wide_block": _blocks(128, 128, 16, 8, 3),
    "few_warps": FMA_BLOCKS | {"num_warps": 4},
    "one_stage": FMA_BLOCKS | {"num_stages": 1},
    "ungrouped": FMA_BLOCKS | {"GROUP": 1},
}
VARIANTS = (*SHAPES, "autotuned")


def _candidates(configs: list[Any], named: Mapping[str, Any], **_: Any) -> list[Any]:
    """Those for the operands' type."""
    shapes = FMA_SHAPES if named["x"].dtype == torch.float32 else SHAPES
    wanted = [{k: v for k, v in shape.items() if k.isupper()} for shape in shapes.values()]
    return [config for config in configs if config.kwargs in wanted]


def _configs() -> list[Any]:
    every = {tuple(shape.items()): shape for shape in (*SHAPES.values(), *FMA_SHAPES.values())}
    return [
        triton.Config(
            {k: v for k, v in shape.items() if k.isupper()}, shape["num_warps"], shape["num_stages"]
        )
        for shape in every.values()
    ]


#: Triton's own autotuner; TritonCall.details says what it tried.
autotuned = triton.autotune(
    _configs(), key=["m", "n", "k"], prune_configs_by={"early_config_prune": _candidates}
)(matmul)


def launches(variant: str, arrays: Mapping[str, torch.Tensor]) -> Sequence[Launch]:
    """The one launch of x[m,k], w[k,n] -> y[m,n], all of one dtype."""
    x, w, y = arrays["x"], arrays["w"], arrays["y"]
    shapes = FMA_SHAPES if x.dtype == torch.float32 else SHAPES
    if variant == "autotuned":
        if triton.knobs.runtime.interpret:  # which has no clock worth asking
            return [product(x, w, y, blocks=shapes["blocked"])]
        return [product(x, w, y, blocks={}, kernel=autotuned)]
    return [product(x, w, y, blocks=shapes[variant])]


def bind_triton(case: Case, inputs: Arrays, outputs: Arrays) -> TritonCall:
    """Bind a case: inputs x and w, output y, in the case's dtype."""
    return _launch.bind(lambda arrays: launches(case.variant, arrays), inputs, outputs)
