"""The operator plan: which kernel does an operator's work, as a pure function of the switches.

``plan(op, levels)`` looks at nothing else, so every mixture can be tested without running anything. Where two
switches meet, the rule is here and nowhere else: quantization owns the products of the MLP and leaves
precision the rest; over-fusion owns the whole MLP, so tiling and launch don't reach inside it.
"""

from __future__ import annotations

from dataclasses import dataclass

from flashperf.pipeline.switches import Levels

CHUNKS = 8  # calls that a chunked operator is issued as

MLP_ROLES = ("gate_up", "down")
LINEAR_ROLES = ("qkv", "out", *MLP_ROLES, "head")


@dataclass(frozen=True)
class Op:
    """An operator of the model.

    kind: "linear" (role: one of LINEAR_ROLES), "norm", "attention", "mlp"
    """

    kind: str
    role: str = ""


@dataclass(frozen=True)
class KernelSpec:
    """How an operator is carried out.

    format:    what is multiplied: "f32", "mixed", "bf16", "f16", "int8"
    storage:   what activations are kept in: "f32", "bf16", "f16"
    algorithm: products: "packed", "bad_tile", "naive", "over"; attention: "online", "online_masked",
               "materialised"; norms: "rowwise"
    epilogue:  "fused" (in the product or in one kernel), "kernel" (one kernel after it), "passes"
    chunks:    calls that the operator is issued as
    window:    attention only: "" (all keys), "skip" (only the window's keys read), "mask" (all read, then masked)
    """

    format: str
    storage: str
    algorithm: str
    epilogue: str = "fused"
    chunks: int = 1
    window: str = ""


def storage_of(levels: Levels) -> str:
    """What activations and the KV cache are stored in. Mixed precision casts around products only."""
    return {"f32": "f32", "mixed": "f32", "bf16": "bf16", "f16": "f16"}[levels["precision"]]


def needs_mask(levels: Levels) -> bool:
    """Whether attention is handed a mask tensor: eager attention, a window as a mask, or a host that makes one."""
    return (
        levels["attention"] == "materialised"
        or levels["span"] == "window_mask"
        or levels["preprocessing"] == "rebuilt"
    )


def plan(op: Op, levels: Levels) -> KernelSpec:
    """The kernel for ``op`` under ``levels``. Raises ValueError for an operator that is not one of the model's."""
    storage = storage_of(levels)
    chunks = CHUNKS if levels["launch"] == "chunked" else 1
    passes = "passes" if levels["fusion"] == "split" else "fused"
    if op.kind == "norm":
        return KernelSpec(storage, storage, "rowwise", passes, chunks)
    if op.kind == "attention":
        return _plan_attention(levels, storage, passes, chunks)
    if op.kind == "mlp" or (op.kind == "linear" and op.role in LINEAR_ROLES):
        return _plan_product(op, levels, storage, passes, chunks)
    raise ValueError(f"no such operator: {op}")


def _plan_product(op: Op, levels: Levels, storage: str, passes: str, chunks: int) -> KernelSpec:
    in_mlp = op.kind == "mlp" or op.role in MLP_ROLES
    quantized = in_mlp and levels["quantization"] == "int8_dynamic"
    product_format = "int8" if quantized else levels["precision"]
    if op.kind == "mlp" and levels["fusion"] == "over":
        return KernelSpec(product_format, storage, "over")
    algorithm = {"blocked": "packed", "bad_tile": "bad_tile", "naive": "naive"}[levels["tiling"]]
    # Only the packed product has room for an epilogue: the others, and products between casts, are followed
    # by one more kernel instead.
    fusable = algorithm == "packed" and product_format != "mixed"
    epilogue = "kernel" if passes == "fused" and not fusable else passes
    return KernelSpec(product_format, storage, algorithm, epilogue, chunks)


def _plan_attention(levels: Levels, storage: str, passes: str, chunks: int) -> KernelSpec:
    window = {"full": "", "window": "skip", "window_mask": "mask"}[levels["span"]]
    if levels["attention"] == "materialised":
        return KernelSpec(storage, storage, "materialised", passes, 1, window)
    # A mask tensor is an operand that the kernel can't see through: no key is skipped for it.
    masked = needs_mask(levels)
    return KernelSpec(storage, storage, "online_masked" if masked else "online", "fused", chunks, window)
