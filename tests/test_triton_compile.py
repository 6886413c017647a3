"""Every Triton variant is compiled for three GPUs, without one, and its machine code holds what it should.

Kernels are compiled in processes of their own: in this one Triton may be interpreting. Triton's cache in build/triton
makes a second run quick.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping

import pytest

from flashperf import registry
from flashperf.machine_code import TENSOR_CORE, KernelCode, why_not
from flashperf.records import Case

pytest.importorskip("torch", reason="torch is not installed (pip install 'flashperf[triton]')")
pytest.importorskip("triton", reason="triton is not installed (pip install 'flashperf[triton]')")

from flashperf.kernels._compile import ARCHITECTURES, Compiled

pytestmark = pytest.mark.slow

#: Sizes as a launch would see them: multiples of 16. Mechanism -> the sizes that its variants are compiled for.
SIZES: dict[str, list[dict[str, int | str]]] = {
    "attention": [{"heads": 2, "rows": 256, "keys": 256, "head_dim": 64, "window": 64}],
    "batching": [{"sequences": 4, "rows": 112, "longest": 64, "k": 128, "n": 128}],
    "cache": [{"n": 65536, "chunk": 16384}],
    "fusion": [
        {"op": op, "rows": 64, "cols": 4096}
        for op in ("bias_gelu", "cross_entropy", "residual_rmsnorm", "softmax", "swiglu")
    ],
    "launch": [{"n": 65536, "chunks": 4}],
    "overfusion": [{"m": 256, "d": 256, "f": 512}],
    "precision": [{"m": 256, "k": 256, "n": 256}],
    "quantization": [{"m": 256, "k": 256, "n": 256}],
    "tiling": [{"m": 256, "k": 256, "n": 256}],
}
#: Beside them: few rows, large heads, f32 operands.
MORE = (
    "precision/bf16/triton/f32/m=16-k=256-n=256",
    "tiling/blocked/triton/f32/m=256-k=256-n=256",
    "tiling/wide_block/triton/f32/m=256-k=256-n=256",
    "attention/online/triton/bf16/heads=2-rows=256-keys=256-head_dim=128-window=64",
    "attention/online/triton/bf16/heads=2-rows=16-keys=256-head_dim=64-window=64",
    "attention/online/triton/f32/heads=2-rows=256-keys=256-head_dim=64-window=64",
    "overfusion/over/triton/bf16/m=256-d=1024-f=512",
    "overfusion/fused/triton/f32/m=256-d=256-f=512",
    "overfusion/split_k/triton/bf16/m=16-d=256-f=512",
)
#: Spills that are known: (case, architecture) -> why they are let be.
SPILLS = {
    (
        MORE[3],
        "sm_80",
    ): "blocks of 64 keys suit wgmma; without it 128 columns of sums leave too few registers",
}


def compiled_cases() -> list[str]:
    found = []
    for name in registry.names():
        mechanism = registry.mechanism(name)
        if "triton" not in mechanism.bind:
            continue
        dtype = "bf16" if "bf16" in mechanism.dtypes else mechanism.dtypes[0]
        for variant, backends in mechanism.variants.items():
            if "triton" not in backends or variant == "autotuned":  # a choice among the variants beside it
                continue
            cases = [Case.of(name, variant, "triton", dtype, sizes) for sizes in SIZES[name]]
            found += [case.id for case in cases]
    return [*found, *MORE]


CASES = compiled_cases()


@pytest.fixture(scope="module")
def compiled() -> Mapping[tuple[str, str], list[Compiled]]:
    """(case, architecture) -> its kernels, compiled by two processes."""
    if reason := why_not("nvdisasm", "cuobjdump"):
        pytest.skip(reason)
    command = [sys.executable, "-m", "flashperf.kernels._compile", ",".join(ARCHITECTURES)]
    environment = {**os.environ, "TRITON_INTERPRET": "0"}
    running = [
        subprocess.Popen([*command, *part], env=environment, stdout=subprocess.PIPE, text=True)
        for part in (CASES[::2], CASES[1::2])
    ]
    results: dict[tuple[str, str], list[Compiled]] = {}
    for process in running:
        output, _ = process.communicate(timeout=600)
        assert process.returncode == 0, "compiling failed: see standard error"
        for line in output.splitlines():
            fields = json.loads(line)
            kernel = Compiled(**fields | {"code": KernelCode(**fields["code"])})
            results.setdefault((kernel.case, kernel.architecture), []).append(kernel)
    return results


#: What multiplies, by the format of the operands and the architecture.
UNITS = {
    "f16": {"sm_80": "HMMA", "sm_90": "HGMMA", "sm_100": "UTCMMA"},
    "bf16": {"sm_80": "HMMA", "sm_90": "HGMMA", "sm_100": "UTCMMA"},
    "tf32": {"sm_80": "HMMA", "sm_90": "HGMMA", "sm_100": "UTCMMA"},
    "fp8": {"sm_90": "QGMMA", "sm_100": "UTCMMA"},
    "int8": {"sm_80": "IMMA", "sm_90": "IGMMA", "sm_100": "UTCMMA"},
    "f32": dict.fromkeys(ARCHITECTURES, "FFMA"),
    # fewer rows than a warp group's product has: the older instruction on every architecture
    "16 rows": dict.fromkeys(ARCHITECTURES, "HMMA"),
}
#: The products of a variant: (beginning of the case, kernel) -> the format of their operands.
PRODUCTS = {
    ("precision/f32/", "matmul"): "f32",
    ("precision/tf32/", "matmul"): "tf32",
    ("precision/f16/", "matmul"): "f16",
    ("precision/bf16/triton/f32/m=256", "matmul"): "bf16",
    ("precision/bf16/triton/f32/m=16-", "matmul"): "16 rows",
    ("precision/fp8/", "matmul"): "fp8",
    ("precision/cast_churn/", "matmul"): "bf16",
    ("tiling/blocked/triton/bf16/", "matmul"): "bf16",
    ("tiling/wide_block/triton/bf16/", "matmul"): "bf16",
    ("tiling/few_warps/", "matmul"): "bf16",
    ("tiling/one_stage/", "matmul"): "bf16",
    ("tiling/ungrouped/", "matmul"): "bf16",
    ("tiling/bad_tile/", "matmul"): "16 rows",
    ("tiling/blocked/triton/f32/", "matmul"): "f32",
    ("tiling/wide_block/triton/f32/", "matmul"): "f32",
    ("attention/online/triton/bf16/heads=2-rows=256", "online"): "bf16",
    ("attention/online/triton/bf16/heads=2-rows=16", "online"): "16 rows",
    ("attention/online/triton/f32/", "online"): "f32",
    ("attention/window/", "online"): "bf16",
    ("attention/window_as_mask/", "online"): "bf16",
    ("attention/materialised/", "write_scores"): "bf16",
    ("attention/materialised/", "weigh_values"): "bf16",
    ("quantization/f32/", "matmul"): "f32",
    ("quantization/int8_dynamic/", "matmul"): "int8",
    ("quantization/int8_dynamic_fused/", "scaled_product"): "int8",
    ("quantization/int8_static/", "scaled_product"): "int8",
    ("quantization/weight_only/", "scaled_product"): "bf16",
    ("overfusion/fused/triton/bf16/", "gate_up"): "bf16",
    ("overfusion/fused/triton/bf16/", "matmul"): "bf16",
    ("overfusion/fused/triton/f32/", "gate_up"): "f32",
    ("overfusion/fused/triton/f32/", "matmul"): "f32",
    ("overfusion/split/", "matmul"): "bf16",
    ("overfusion/over/", "whole_mlp"): "16 rows",
    ("overfusion/split_k/triton/bf16/m=256", "gate_up"): "bf16",
    ("overfusion/split_k/triton/bf16/m=256", "partial_product"): "bf16",
    ("overfusion/split_k/triton/bf16/m=16-", "gate_up"): "16 rows",
    ("overfusion/split_k/triton/bf16/m=16-", "partial_product"): "16 rows",
    ("batching/", "matmul"): "f32",
}
#: Products whose operands are not on the way into shared memory while others multiply.
NOT_PIPELINED = ("tiling/bad_tile/", "tiling/one_stage/")
#: Kernels that stream: 16 bytes an access both ways. The others read or write a value per row, or bytes, or learn from
#: memory how many keys are in use, so that no 16 bytes are known to be inside.
STREAMING = (
    *("cast", "unary_pass", "bias_gelu", "swiglu", "softmax", "residual_rmsnorm", "add_parts"),
    *("scaled_sum", "scaled_sum_persistent", "produce", "consume", "dequantize"),
)
OTHERS = (
    *("binary_pass", "row_pass", "add_mask", "quantize_rows", "quantize_known", "pad_rows", "unpad_rows"),
    *("cross_entropy", "log_softmax", "pick_loss", "normalise"),
)


def format_of(case: str, kernel: str) -> str:
    found = [kept for (start, name), kept in PRODUCTS.items() if case.startswith(start) and name == kernel]
    assert len(found) <= 1, f"{case} {kernel}: {len(found)} lines of the table"
    return found[0] if found else ""


def kernels_of(
    compiled: Mapping[tuple[str, str], list[Compiled]], case: str, architecture: str
) -> list[Compiled]:
    if case.startswith("precision/fp8") and architecture == "sm_80":
        pytest.skip("products of e4m3 came with sm_89")
    return compiled[case, architecture]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("case", CASES)
def test_machine_code(
    compiled: Mapping[tuple[str, str], list[Compiled]], case: str, architecture: str
) -> None:
    for kernel in kernels_of(compiled, case, architecture):
        code, name = kernel.code, kernel.code.name
        assert code.architecture == architecture
        kept = format_of(case, name)
        if kept:
            unit = UNITS[kept][architecture]
            assert code.count(unit), f"{name} has no {unit}: {dict(code.opcodes)}"
            wrong = [other for other in code.tensor_core if other != unit]
            assert not wrong, f"{name} multiplies with {wrong}, not {unit} alone"
        else:
            assert name in (*STREAMING, *OTHERS), f"{name} of {case} is in no table"
            assert not code.count(*TENSOR_CORE)
        if name in STREAMING:
            assert code.count("LDG.128"), f"{name} loads less than 16 bytes at once"
            assert code.count("STG.128"), f"{name} stores less than 16 bytes at once"


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("case", [case for case in CASES if format_of(case, "matmul")])
def test_a_pipelined_product_copies_past_the_registers(
    compiled: Mapping[tuple[str, str], list[Compiled]], case: str, architecture: str
) -> None:
    """cp.async, 16 bytes each, and no operand through registers; a product with one stage the other way round."""
    for kernel in kernels_of(compiled, case, architecture):
        if kernel.code.name != "matmul":
            continue
        through_registers, past = kernel.code.count("LDG.128"), kernel.code.count("LDGSTS.128")
        if case.startswith(NOT_PIPELINED):
            assert through_registers
            assert not past
        else:
            assert past
            assert not kernel.code.count("LDG.128", "LDG", "LDGSTS")
        if format_of(case, "matmul") != "16 rows":  # whose 4 warps have 4 results a thread
            assert kernel.code.count("STG.128")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("case", CASES)
def test_nothing_spills(
    compiled: Mapping[tuple[str, str], list[Compiled]], case: str, architecture: str
) -> None:
    spilled = [k.code.name for k in kernels_of(compiled, case, architecture) if k.code.spilled]
    if (case, architecture) in SPILLS:
        assert spilled, f"no spill any more: take it out of the table ({SPILLS[case, architecture]})"
    else:
        assert not spilled


def test_what_a_kernel_takes_fits_an_sm(compiled: Mapping[tuple[str, str], list[Compiled]]) -> None:
    most_shared_bytes = {"sm_80": 163 << 10, "sm_90": 227 << 10, "sm_100": 227 << 10}  # of one block
    for (case, architecture), kernels in compiled.items():
        for kernel in kernels:
            assert kernel.shared_bytes <= most_shared_bytes[architecture], f"{case}: {kernel.code.name}"
            assert kernel.code.registers * kernel.threads <= 65536
