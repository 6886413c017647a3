"""The operator plan: which kernel does an operator's work, as a pure function of the switches.

``plan(op, levels)`` looks at nothing else, so every mixture can be tested without running anything. Where two
switches meet, the rule is here and nowhere else: quantization owns the products of the MLP and leaves
precision the rest; over-fusion owns the whole MLP, so tiling and launch don't reach inside it, and its kernel
knows neither weights alone in INT8 nor scales found beforehand.
"""

from __future__ import annotations

from dataclasses import dataclass

from flashperf.pipeline.switches import Levels, precision_of

CHUNKS = 8  # calls that a chunked operator is issued as
#: From how many rows on ``precision=adaptive`` multiplies in bf16 where no rule was measured.
ADAPTIVE_ROWS = 8

MLP_ROLES = ("gate_up", "down")
LINEAR_ROLES = ("qkv", "out", *MLP_ROLES, "head")


@dataclass(frozen=True)
class Op:
    """An operator of the model.

    kind: "linear" (role: one of LINEAR_ROLES), "norm", "attention", "mlp"
    rows: rows of its input, which only ``precision=adaptive`` looks at
    """

    kind: str
    role: str = ""
    rows: int = 1


@dataclass(frozen=True)
class KernelSpec:
    """How an operator is carried out.

    format:    what is multiplied: "f32", "mixed", "bf16", "f16", "int8", "int8_static", "w8" (weights alone)
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

    @property
    def casts(self) -> bool:
        """Whether the operands of a product are cast in memory around it."""
        return self.format == "mixed" or (self.format == "bf16" and self.storage == "f32")


def storage_of(levels: Levels) -> str:
    """What activations and the KV cache are stored in. Mixed and adaptive precision cast around products only."""
    precision = precision_of(levels)
    return precision if precision in ("bf16", "f16") else "f32"


def product_format(levels: Levels, rows: int) -> str:
    """What precision alone makes of a product of so many rows."""
    precision, _, least = levels["precision"].partition(":")
    if precision != "adaptive":
        return precision
    return "bf16" if rows >= int(least or ADAPTIVE_ROWS) else "f32"


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
    over = op.kind == "mlp" and levels["fusion"] == "over"
    product = product_format(levels, op.rows)
    quantization = levels["quantization"] if in_mlp else "none"
    if quantization == "weight_only" and not over:
        product = "w8"
    elif quantization in ("int8_dynamic", "int8_static"):
        product = "int8" if over or quantization == "int8_dynamic" else "int8_static"
    if over:
        return KernelSpec(product, storage, "over")
    algorithm = {"blocked": "packed", "bad_tile": "bad_tile", "naive": "naive"}[levels["tiling"]]
    spec = KernelSpec(product, storage, algorithm, passes, chunks)
    # Only the packed product has room for an epilogue: the others, and products between casts, are followed
    # by one more kernel instead.
    if passes == "fused" and (algorithm != "packed" or spec.casts):
        return KernelSpec(product, storage, algorithm, "kernel", chunks)
    return spec


def _plan_attention(levels: Levels, storage: str, passes: str, chunks: int) -> KernelSpec:
    window = {"full": "", "window": "skip", "window_mask": "mask"}[levels["span"]]
    if levels["attention"] == "materialised":
        return KernelSpec(storage, storage, "materialised", passes, 1, window)
    # A mask tensor is an operand that the kernel can't see through: no key is skipped for it.
    masked = needs_mask(levels)
    return KernelSpec(storage, storage, "online_masked" if masked else "online", "fused", chunks, window)
