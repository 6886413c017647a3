"""Tiling: what does the block shape of a matrix product decide?

- packed: weights packed once in panels, register and cache blocks fitted to the machine
- blocked: the same blocks on weights as they are stored, packed inside the call where that pays
- bad_tile: a small tile that reloads its sums from memory, weights as stored: an untuned default
- naive: three loops, one product at a time

With CUDA, in f32, blocked is the pipelined kernel of 128 x 128 tiles and bad_tile one of 8 x 8; and there are:

- tiled_8, tiled_16, tiled_32: a tile of each operand in shared memory, an element of y per thread
- register_64, register_128: 4 x 4 and 8 x 8 elements per thread, from tiles of that many rows and columns
- pipelined: the same with copies into shared memory that run ahead of the products (cp.async)
- uncoalesced, bank_conflicts: neighbouring threads a row apart in memory; in shared memory, in the same bank

With Triton, in any dtype, blocked is 128 x 128 (f32: 64 x 64), bad_tile 16 x 16, and there are:

- wide_block, few_warps, one_stage, ungrouped: one thing of blocked changed each: columns, warps, loads in flight, the
  order of programs that shares operands in L2
- autotuned: Triton's autotuner over all of these; what it tried and took goes into the record
"""

from __future__ import annotations

from collections.abc import Callable

from flashperf.dtypes import widen
from flashperf.mechanisms import _passes, _products
from flashperf.mechanisms._elsewhere import binder
from flashperf.mechanisms._passes import Pass
from flashperf.records import Arrays, ArraySpec, Case, Cost, Mechanism, Tolerance

#: Block shapes that only a GPU has.
_CUDA_ONLY = (
    *("uncoalesced", "bank_conflicts"),
    *("tiled_8", "tiled_16", "tiled_32", "register_64", "register_128", "pipelined"),
)

#: One thing of ``blocked`` changed, and Triton's autotuner over all of them.
_TRITON_ONLY = ("wide_block", "few_warps", "one_stage", "ungrouped", "autotuned")


def _specs(case: Case) -> dict[str, ArraySpec]:
    m, k, n, t = case["m"], case["k"], case["n"], case.dtype
    arrays = {"x": (m, k), "w": (k, n), "y": (m, n)}
    specs = {name: ArraySpec(shape, t) for name, shape in arrays.items()}
    return specs | {"packed": _products.packed_spec(k, n, t)}


def passes(case: Case) -> list[Pass]:
    """The one launch of a call."""
    weights = "packed" if case.variant == "packed" else "w"
    flops = 2 * case["m"] * case["k"] * case["n"]
    return [Pass(f"gemm_{case.dtype}_{case.variant}", f"x {weights} -> y", flops)]


def make_inputs(case: Case) -> Arrays:
    """x [m, k] and w [k, n] in the case's dtype."""
    return _products.product_inputs(case, case.dtype)


def outputs(case: Case) -> dict[str, ArraySpec]:
    """y [m, n]."""
    return {"y": _specs(case)["y"]}


def reference(case: Case, inputs: Arrays) -> Arrays:
    """float64 product of the stored operands."""
    return {"y": widen(inputs["x"], case.dtype) @ widen(inputs["w"], case.dtype)}


def bind_cpu(case: Case, inputs: Arrays, outputs: Arrays) -> Callable[[], None]:
    """Packed weights are packed here, once."""
    arrays = {**inputs, **outputs}
    if case.variant == "packed":
        arrays["packed"] = _products.pack(inputs["w"], case.dtype)
    return _passes.bind(passes(case), _specs(case), arrays)


def cost(case: Case) -> Cost:
    return _passes.cost(passes(case), _specs(case))


def ideal_bytes(case: Case) -> int:
    """Every operand read once, the result written once."""
    specs = _specs(case)
    return sum(_passes.size_bytes(specs[name]) for name in ("x", "w", "y"))


def tolerance(case: Case) -> Tolerance:
    """Operands are exact as stored: only sums and the result are rounded."""
    return _products.product_tolerance(case["k"], "f32", case.dtype)


def supports(case: Case) -> str:
    """The CUDA kernels compare shapes in one type; what a type does is the question of ``precision``."""
    if case.backend == "cuda" and case.dtype != "f32":
        return f"tiling's CUDA kernels are f32 alone, not {case.dtype}"
    return ""


MECHANISM = Mechanism(
    name="tiling",
    question="What does the block shape of a matrix product decide?",
    claims=("A6", "B16"),
    variants={
        "packed": ("cpu",),
        **dict.fromkeys(("blocked", "bad_tile"), ("cpu", "cuda", "triton")),
        "naive": ("cpu", "cuda"),
        **dict.fromkeys(_CUDA_ONLY, ("cuda",)),
        **dict.fromkeys(_TRITON_ONLY, ("triton",)),
    },
    standard="packed",
    flash="bad_tile",
    dtypes=("f32", "bf16", "f16"),
    test_sizes=({"m": 1, "k": 1, "n": 1}, {"m": 3, "k": 70, "n": 45}, {"m": 33, "k": 65, "n": 97}),
    bench_sizes=({"m": 1, "k": 512, "n": 512}, {"m": 128, "k": 192, "n": 576}),
    gpu_bench_sizes=({"m": 16, "k": 2048, "n": 2048}, {"m": 2048, "k": 2048, "n": 2048}),
    make_inputs=make_inputs,
    outputs=outputs,
    reference=reference,
    cost=cost,
    ideal_bytes=ideal_bytes,
    tolerance=tolerance,
    bind={"cpu": bind_cpu, "cuda": binder("cuda", "tiling"), "triton": binder("triton", "tiling")},
    supports=supports,
)
