"""What the machine code of each CUDA kernel must hold, and must not, for its mechanism to be what it says.

The table is data: ``flashperf inspect`` prints how each kernel fares, tests assert it for every architecture. It
says what our kernels are: products by ``mma.sync``, which is HMMA and IMMA on every architecture here. Kernels of
``wgmma`` (HGMMA, sm_90a) or ``tcgen05`` (UTC*MMA, sm_100) would be rows with an architecture of their own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from flashperf.machine_code import ARCHITECTURES, TENSOR_CORE, KernelCode

_HOPPER_PRODUCTS = "HMMA|HGMMA"  # either would do there
_ALIGNED = r"(?!.*_any_size)"


@dataclass(frozen=True)
class Expectation:
    """Of the kernels of ``stem`` whose name matches: ``holds`` (alternatives with |), ``lacks``, and why."""

    stem: str
    kernels: str
    why: str
    holds: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ARCHITECTURES

    def applies(self, stem: str, kernel: str, architecture: str) -> bool:
        """Whether the row is about this kernel."""
        return (
            stem == self.stem
            and architecture in self.architectures
            and re.fullmatch(self.kernels, kernel) is not None
        )

    def failures(self, code: KernelCode) -> list[str]:
        """What is missing, or should not be there; empty if it is as expected."""
        missing = [f"no {name}" for name in self.holds if not code.count(*name.split("|"))]
        extra = [f"{code.count(name)} {name}" for name in self.lacks if code.count(name)]
        return [f"{what} ({self.why})" for what in missing + extra]


def _tensor(stem: str, kernels: str, why: str, *more: str) -> tuple[Expectation, ...]:
    """Products on Tensor Cores in floating point: HMMA, and on Hopper either kind."""
    others = tuple(name for name in ARCHITECTURES if name != "sm_90a")
    return (
        Expectation(stem, kernels, why, ("HMMA", *more), ("IMMA",), others),
        Expectation(stem, kernels, why, (_HOPPER_PRODUCTS, *more), ("IMMA",), ("sm_90a",)),
    )


_FMA = "products on the FMA units"
_PIPELINE = "tiles come by 16-byte cp.async, not through registers"
_WIDE = "16 bytes per access"

EXPECTATIONS: tuple[Expectation, ...] = (
    # precision: which unit multiplies
    Expectation("precision", r"gemm_(plain_\w+|f32\w*)", _FMA, ("FFMA",), TENSOR_CORE),
    *_tensor("precision", r"gemm_(tf32|f16|bf16)\w*", "mma.sync", "LDSM"),
    *_tensor("precision", r"gemm_wmma_\w+", "WMMA"),
    Expectation(
        "precision", rf"{_ALIGNED}gemm_(f32|tf32|f16|bf16)", _PIPELINE, ("LDGSTS.128",), ("LDG.128",)
    ),
    Expectation("precision", "cast_f32_f16|cast_f32_bf16", _WIDE, ("LDG.128",)),
    Expectation("precision", "cast_f16_f32|cast_bf16_f32", _WIDE, ("STG.128",)),
    # quantization: integers on Tensor Cores, or four at a time on the ALUs
    Expectation("quantization", r"gemm_imma\w*", "int8 on Tensor Cores", ("IMMA", "LDSM"), ("HMMA", "DP4A")),
    Expectation("quantization", rf"{_ALIGNED}gemm_imma\w*", _PIPELINE, ("LDGSTS.128",), ("LDG.128",)),
    Expectation("quantization", r"gemm_dp4a\w*", "four products per instruction", ("DP4A",), TENSOR_CORE),
    Expectation("quantization", r"gemm_plain", "no Tensor Cores", (), TENSOR_CORE),
    # tiling: from no reuse to reuse in registers, all on the FMA units
    Expectation("tiling", r"\w+", _FMA, ("FFMA",), TENSOR_CORE),
    Expectation("tiling", r"naive|uncoalesced", "no shared memory", (), ("LDS", "STS", "LDGSTS.128")),
    Expectation("tiling", r"tiled_\w+|bank_conflicts", "shared tiles", ("LDS|LDS.128", "STS", "BAR")),
    Expectation("tiling", r"register_\w+", "register tiles read 16 bytes at a time", ("LDS.128",)),
    Expectation("tiling", "pipelined", _PIPELINE, ("LDGSTS.128", "LDS.128", "STG.128"), ("LDG.128",)),
    # fusion: one pass with wide accesses, or many narrow ones
    Expectation("fusion", rf"{_ALIGNED}fused_\w+", _WIDE, ("LDG.128", "STG.128"), TENSOR_CORE),
    Expectation("fusion", r"(?!fused_)\w+", "an element per thread", ("LDG", "STG"), ("LDG.128", "STG.128")),
    # attention
    *_tensor("attention", r"online_(f16|bf16)_\w+", "mma.sync", "LDSM"),
    Expectation("attention", r"online_(f16|bf16)_(64|128)", _PIPELINE, ("LDGSTS.128",), ("LDG.128",)),
    Expectation("attention", r"(online|scores|values)_f32", _FMA, ("FFMA",), TENSOR_CORE),
    # overfusion
    Expectation("overfusion", r"(product|gate_up|mlp_over)_f32\w*", _FMA, ("FFMA",), TENSOR_CORE),
    *_tensor("overfusion", r"(product|gate_up)_(f16|bf16)\w*", "mma.sync", "LDSM"),
    *_tensor("overfusion", r"mlp_over_(f16|bf16)", "WMMA"),
    Expectation("overfusion", rf"{_ALIGNED}(product|gate_up)_\w+", _PIPELINE, ("LDGSTS.128",), ("LDG.128",)),
    # streams
    Expectation("cache", r"\w+", _WIDE, ("LDG.128", "STG.128")),
    Expectation("launch", r"chunk\w*|persistent", _WIDE, ("LDG.128", "STG.128")),
    Expectation("launch", r"persistent", "chunks are taken from a queue", ("ATOM", "BAR")),
    Expectation("pinning", r"work_queue", "rows are taken from a queue", ("ATOM", "BAR")),
    Expectation("pinning", r"static_partition", "no queue", (), ("ATOM",)),
    Expectation("roofs", r"stream_\w+", _WIDE, ("LDG.128",)),
    Expectation("roofs", r"stream_(copy|triad)", _WIDE, ("STG.128",)),
    Expectation("roofs", r"shared_\w+", _WIDE, ("LDS.128",)),
    Expectation("roofs", r"shared_(copy|triad)", _WIDE, ("STS.128",)),
    Expectation("roofs", "peak_f32_fma", _FMA, ("FFMA",), TENSOR_CORE),
    *_tensor("roofs", r"peak_(tf32|f16|bf16)_mma", "mma.sync"),
    Expectation("roofs", "peak_i8_mma", "int8 on Tensor Cores", ("IMMA",), ("HMMA", "DP4A")),
    Expectation("batching", r"multiply_rows\w*", _FMA, ("FFMA",), TENSOR_CORE),
    Expectation("batching", "multiply_rows", _PIPELINE, ("LDGSTS.128", "STG.128"), ("LDG.128",)),
    # the pipeline's own: few rows stream the weight once, more go through the kernels above
    Expectation(
        "pipeline", r"(residual_)?rmsnorm_(f32|f16|bf16)", _WIDE, ("LDG.128", "STG.128"), TENSOR_CORE
    ),
    Expectation("pipeline_products", r"few_(swiglu_)?1_\w+", _WIDE, ("FFMA", "LDG.128"), TENSOR_CORE),
    Expectation("pipeline_products", r"(few|untuned|weight_only)_\w*(f32|f16)", _FMA, ("FFMA",), TENSOR_CORE),
    Expectation(
        "pipeline_attention", r"masked_f32|(scores|values)_(window_)?f32", _FMA, ("FFMA",), TENSOR_CORE
    ),
    *_tensor("pipeline_attention", r"masked_(f16|bf16)_\w+", "mma.sync", "LDSM"),
    Expectation(
        "pipeline_int8", r"swiglu_int8_\w+", "int8 on Tensor Cores", ("IMMA", "LDSM"), ("HMMA", "DP4A")
    ),
    Expectation("pipeline_int8", r"mlp_over_int8_\w+|naive_i8", "four products each", ("DP4A",), TENSOR_CORE),
)


def expected_of(stem: str, kernel: str, architecture: str) -> list[Expectation]:
    """The rows about a kernel."""
    return [row for row in EXPECTATIONS if row.applies(stem, kernel, architecture)]


def failures(stem: str, code: KernelCode, architecture: str) -> list[str]:
    """Where a kernel is not as the table says. No kernel may spill, or use local memory at all."""
    found = [what for row in expected_of(stem, code.name, architecture) for what in row.failures(code)]
    if code.spilled:
        found.append(f"{code.spill_bytes or code.local_accesses} spilled")
    elif code.local_accesses:
        found.append(f"{code.local_accesses} accesses of local memory")
    return found
