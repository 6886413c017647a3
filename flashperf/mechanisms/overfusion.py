"""Overfusion: when does one kernel for everything lose what it saves?

A SwiGLU MLP, (silu(x @ gate) * (x @ up)) @ down:

- split: two products, silu, a product by element, the last product: five kernels (``LlamaMLP.forward``)
- fused: the two products share a kernel that ends with SwiGLU; the last product is its own. Right-sized
- over: one kernel that carries each row through all three products, the hidden row in a scratch of the kernel, as
  fully fused MLPs do (tiny-cuda-nn). Rows are the only axis left to work on in parallel, so weights are read again for
  every row and there is nothing to block in registers

With Triton there is also:

- split_k: as fused, the sums of the last product in four parts, which one more kernel adds up: more programs where
  rows are few
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from flashperf.dtypes import UNIT_ROUNDOFF, cast, widen
from flashperf.mechanisms import _passes, _products
from flashperf.mechanisms._elsewhere import binder
from flashperf.mechanisms._passes import Pass
from flashperf.records import Arrays, ArraySpec, Case, Cost, Mechanism, Tolerance

#: How many programs share one sum in split_k, each with a part of it.
SPLITS = 4
#: The d up to which Triton's one kernel keeps the sums of its rows in registers.
WIDEST_TRITON_ROW = 1024


def _specs(case: Case) -> dict[str, ArraySpec]:
    m, d, f, t = case["m"], case["d"], case["f"], case.dtype
    wide = ("gate", "up", "activated", "hidden")
    return {
        "parts": ArraySpec((SPLITS, m, d), "f32"),
        "x": ArraySpec((m, d), t),
        "y": ArraySpec((m, d), t),
        **{name: ArraySpec((m, f), t) for name in wide},
        "w_gate": _products.weight_spec(case, d, f, t),
        "w_up": _products.weight_spec(case, d, f, t),
        "w_down": _products.weight_spec(case, f, d, t),
    }


def passes(case: Case) -> list[Pass]:
    """The launches of one call."""
    t, hidden = case.dtype, case["m"] * case["f"]
    flops = 2 * hidden * case["d"]
    gate_up = Pass(f"gemm_swiglu_{t}_packed", "x w_gate w_up -> hidden", 2 * flops + 5 * hidden)
    down = Pass(f"gemm_{t}_packed", "hidden w_down -> y", flops)
    return {
        "split": [
            Pass(f"gemm_{t}_packed", "x w_gate -> gate", flops),
            Pass(f"gemm_{t}_packed", "x w_up -> up", flops),
            Pass(f"silu_{t}", "gate -> activated", 4 * hidden, flat=True),
            Pass(f"multiply_{t}", "activated up -> hidden", hidden, flat=True),
            down,
        ],
        "split_k": [
            gate_up,
            Pass("partial_product", "hidden w_down -> parts", flops),
            Pass("add_parts", "parts -> y", (SPLITS - 1) * case["m"] * case["d"]),
        ],
        "fused": [gate_up, down],
        "over": [
            Pass(
                f"mlp_over_{t}",
                "x w_gate w_up w_down -> y",
                3 * flops + 5 * hidden,
                scalars={"f": case["f"]},
            )
        ],
    }[case.variant]


def make_inputs(case: Case) -> Arrays:
    """x [m, d] with outliers; gate, up [d, f] and down [f, d], scaled so that activations stay of order 1."""
    rng = np.random.default_rng(case.seed)
    d, f = case["d"], case["f"]
    x = rng.standard_normal((case["m"], d))
    x.reshape(-1)[:: max(1, x.size // 7)] *= 3.0
    arrays = {"x": x}
    for name, shape in (("weight_gate", (d, f)), ("weight_up", (d, f)), ("weight_down", (f, d))):
        arrays[name] = rng.standard_normal(shape) / np.sqrt(shape[0])
    return {name: cast(values.astype(np.float32), case.dtype) for name, values in arrays.items()}


def outputs(case: Case) -> dict[str, ArraySpec]:
    """y [m, d]."""
    return {"y": _specs(case)["y"]}


def reference(case: Case, inputs: Arrays) -> Arrays:
    """float64, from the stored values."""
    x, gate, up, down = (
        widen(inputs[name], case.dtype) for name in ("x", "weight_gate", "weight_up", "weight_down")
    )
    gated = x @ gate
    return {"y": (gated / (1 + np.exp(-gated)) * (x @ up)) @ down}


def bind_cpu(case: Case, inputs: Arrays, outputs: Arrays) -> Callable[[], None]:
    """Weights are packed here, once."""
    arrays = {"x": inputs["x"], **outputs}
    for name in ("gate", "up", "down"):
        arrays[f"w_{name}"] = _products.pack(inputs[f"weight_{name}"], case.dtype)
    return _passes.bind(passes(case), _specs(case), arrays)


def cost(case: Case) -> Cost:
    return _passes.cost(passes(case), _specs(case))


def ideal_bytes(case: Case) -> int:
    """x and the weights read once, y written once."""
    specs = _specs(case)
    return sum(_passes.size_bytes(specs[name]) for name in ("x", "w_gate", "w_up", "w_down", "y"))


def tolerance(case: Case) -> Tolerance:
    """Hidden values of up to about 10 are rounded up to four times before the last product, whose sum averages."""
    u, single = UNIT_ROUNDOFF[case.dtype], UNIT_ROUNDOFF["f32"]
    sums = 4 * np.sqrt(case["d"] + case["f"]) * single
    rounded = 0.0 if case.dtype == "f32" else 16 * u
    return Tolerance(
        2 * u,
        2 * (rounded + 4 * sums),
        f"twice four roundings of the hidden row in {case.dtype}, sums in f32",
    )


def supports(case: Case) -> str:
    """The one CUDA kernel keeps its rows, hidden ones included, in the shared memory of a block; Triton's its sums."""
    if case.backend == "triton" and case.variant == "over" and case["d"] > WIDEST_TRITON_ROW:
        return f"Triton's one kernel keeps a row's sums in registers: d up to {WIDEST_TRITON_ROW}"
    if case.backend == "cuda":
        from flashperf.cuda.overfusion import why_not

        return why_not(case.variant, case.dtype, case["d"], case["f"])
    return ""


MECHANISM = Mechanism(
    name="overfusion",
    question="When does one kernel for everything lose what it saves?",
    claims=("B6", "B14"),
    variants=dict.fromkeys(("fused", "split", "over"), ("cpu", "cuda", "triton")) | {"split_k": ("triton",)},
    standard="fused",
    flash="over",
    dtypes=("f32", "bf16", "f16"),
    test_sizes=(
        {"m": 1, "d": 1, "f": 1},
        {"m": 3, "d": 33, "f": 70},
        {"m": 17, "d": 64, "f": 40},
        {"m": 17, "d": 64, "f": 48},
    ),
    bench_sizes=({"m": 1, "d": 192, "f": 512}, {"m": 64, "d": 192, "f": 512}),
    gpu_bench_sizes=({"m": 16, "d": 1024, "f": 2816}, {"m": 2048, "d": 1024, "f": 2816}),
    make_inputs=make_inputs,
    outputs=outputs,
    reference=reference,
    cost=cost,
    ideal_bytes=ideal_bytes,
    tolerance=tolerance,
    bind={"cpu": bind_cpu, "cuda": binder("cuda", "overfusion"), "triton": binder("triton", "overfusion")},
    supports=supports,
)
