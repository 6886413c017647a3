"""Fusion: what is gained by doing an operator in one kernel instead of a pass per step of its formula.

Every pass reads its operands from memory and writes its result back; the fused kernel keeps what lies between
in registers. The passes are those that eager code launches:

- residual_rmsnorm: the residual's addition and ``LlamaRMSNorm.forward`` in transformers (to float32, pow,
  mean, rsqrt, product, back, weight; its addition of epsilon is part of the rsqrt kernel here)
- swiglu: ``act_fn(gate) * up`` in ``LlamaMLP.forward``
- bias_gelu: a linear layer's bias, then ``torch.nn.functional.gelu``
- cross_entropy (Triton alone): ``torch.nn.functional.cross_entropy``, which writes all of log_softmax and then
  picks one element per row
- softmax: ``naive_softmax`` of Triton's "Fused Softmax" tutorial (max, subtract, exp, sum, divide)

Intermediates are rounded to the storage type after every pass, as eager code does.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.special import erf

from flashperf.dtypes import UNIT_ROUNDOFF, cast, widen
from flashperf.mechanisms import _passes
from flashperf.mechanisms._elsewhere import binder
from flashperf.mechanisms._passes import Pass
from flashperf.records import Arrays, ArraySpec, Case, Cost, Mechanism, Tolerance

EPS = 1e-5
#: op -> inputs, outputs: names with their dimensions
_ARRAYS = {
    "bias_gelu": ({"x": "rc", "bias": "c"}, {"y": "rc"}),
    "residual_rmsnorm": ({"x": "rc", "delta": "rc", "weight": "c"}, {"total": "rc", "y": "rc"}),
    "softmax": ({"x": "rc"}, {"y": "rc"}),
    "swiglu": ({"gate": "rc", "up": "rc"}, {"y": "rc"}),
    "cross_entropy": ({"x": "rc", "target": "r"}, {"y": "r"}),
}
_TRITON_ONLY = "cross_entropy"
_TEMPORARIES = {"wide": "rc", "squares": "rc", "normal": "rc", "mean": "r", "scale": "r"}


def _specs(case: Case) -> dict[str, ArraySpec]:
    """Every array that some pass of the operator names. Those between the casts of RMSNorm are float32."""
    shapes = {"rc": (case["rows"], case["cols"]), "c": (case["cols"],), "r": (case["rows"],)}
    inputs, outputs = _ARRAYS[case.text("op")]
    named = {**inputs, **outputs, "step": "rc", "step2": "rc", "row": "r", "row2": "r"}
    specs = {name: ArraySpec(shapes[dims], case.dtype) for name, dims in named.items()}
    specs |= {name: ArraySpec(shapes[dims], "f32") for name, dims in _TEMPORARIES.items()}
    if case.text("op") == "cross_entropy":
        specs |= {"target": ArraySpec(shapes["r"], "i32"), "y": ArraySpec(shapes["r"], "f32")}
        specs["logs"] = ArraySpec(shapes["rc"], "f32")
    return specs


def _fused(case: Case) -> list[Pass]:
    rows, t = case["rows"], case.dtype
    n = rows * case["cols"]
    return {
        "bias_gelu": [Pass(f"bias_gelu_{t}", "x bias -> y", 6 * n)],
        "residual_rmsnorm": [
            Pass(f"add_rmsnorm_{t}", "x delta weight -> total y", 5 * n + 3 * rows, scalars={"eps": EPS})
        ],
        "softmax": [Pass(f"softmax_{t}", "x -> y", 5 * n)],
        "swiglu": [Pass(f"swiglu_{t}", "gate up -> y", 5 * n, flat=True)],
        "cross_entropy": [Pass("cross_entropy", "x target -> y", 4 * n + 3 * rows)],
    }[case.text("op")]


def _split(case: Case) -> list[Pass]:
    rows, t = case["rows"], case.dtype
    n = rows * case["cols"]
    return {
        "bias_gelu": [
            Pass(f"add_cols_{t}", "x bias -> step", n),
            Pass(f"gelu_{t}", "step -> y", 5 * n, flat=True),
        ],
        "residual_rmsnorm": _split_rmsnorm(n, rows, t),
        "softmax": [
            Pass(f"row_max_{t}", "x -> row", n),
            Pass(f"subtract_rows_{t}", "x row -> step", n),
            Pass(f"exp_{t}", "step -> step2", n, flat=True),
            Pass(f"row_sum_{t}", "step2 -> row2", n),
            Pass(f"divide_rows_{t}", "step2 row2 -> y", n),
        ],
        "swiglu": [
            Pass(f"silu_{t}", "gate -> step", 4 * n, flat=True),
            Pass(f"multiply_{t}", "step up -> y", n, flat=True),
        ],
        "cross_entropy": [
            Pass("log_softmax", "x -> logs", 5 * n + rows),
            Pass("pick_loss", "logs target -> y", rows, touched={"logs": 4 * rows}),
        ],
    }[case.text("op")]


def _split_rmsnorm(n: int, rows: int, t: str) -> list[Pass]:
    half = t != "f32"
    wide, normal = ("wide", "step") if half else ("total", "normal")
    passes = [
        Pass(f"add_{t}", "x delta -> total", n, flat=True),
        Pass("square_f32", f"{wide} -> squares", n, flat=True),
        Pass("row_mean_f32", "squares -> mean", n + rows),
        Pass("rsqrt_eps_f32", "mean -> scale", 2 * rows, scalars={"eps": EPS}),
        Pass("scale_rows_f32", f"{wide} scale -> normal", n),
        Pass(f"scale_cols_{t}", f"{normal} weight -> y", n),
    ]
    if half:
        passes.insert(1, Pass(f"cast_{t}_f32", "total -> wide", 0, flat=True))
        passes.insert(-1, Pass(f"cast_f32_{t}", "normal -> step", 0, flat=True))
    return passes


def passes(case: Case) -> list[Pass]:
    """The launches of one call."""
    return _fused(case) if case.variant == "fused" else _split(case)


def make_inputs(case: Case) -> Arrays:
    """Normal values with outliers; rows of softmax lie 80 above or below zero, where exp alone overflows."""
    rng = np.random.default_rng(case.seed)
    specs = _specs(case)
    arrays = {}
    for name in _ARRAYS[case.text("op")][0]:
        if name == "target":
            arrays[name] = rng.integers(0, case["cols"], case["rows"], np.int32)
            arrays[name][0] = case["cols"] - 1
            continue
        values = rng.standard_normal(specs[name].shape)
        values.reshape(-1)[:: max(1, values.size // 7)] *= 6.0
        if name == "weight":
            values = 1 + values / 4
        if case.text("op") == "softmax":
            values += rng.choice([-80.0, 0.0, 80.0], size=(case["rows"], 1))
        arrays[name] = cast(values.astype(np.float32), case.dtype)
    return arrays


def outputs(case: Case) -> dict[str, ArraySpec]:
    """y; for the norm the updated residual as well."""
    specs = _specs(case)
    return {name: specs[name] for name in _ARRAYS[case.text("op")][1]}


def reference(case: Case, inputs: Arrays) -> Arrays:
    """float64, from the stored values of the inputs."""
    wide = {name: widen(array, case.dtype) for name, array in inputs.items() if name != "target"}
    op = case.text("op")
    if op == "cross_entropy":
        peak = wide["x"].max(-1, keepdims=True)
        total = np.log(np.exp(wide["x"] - peak).sum(-1)) + peak[:, 0]
        return {"y": total - np.take_along_axis(wide["x"], inputs["target"][:, None], 1)[:, 0]}
    if op == "bias_gelu":
        x = wide["x"] + wide["bias"]
        return {"y": 0.5 * x * (1 + erf(x / math.sqrt(2)))}
    if op == "residual_rmsnorm":
        total = wide["x"] + wide["delta"]
        scale = 1 / np.sqrt((total**2).mean(-1, keepdims=True) + EPS)
        return {"total": total, "y": total * scale * wide["weight"]}
    if op == "softmax":
        e = np.exp(wide["x"] - wide["x"].max(-1, keepdims=True))
        return {"y": e / e.sum(-1, keepdims=True)}
    return {"y": wide["gate"] / (1 + np.exp(-wide["gate"])) * wide["up"]}


def tolerance(case: Case) -> Tolerance:
    """Twice what the passes may lose in the storage type, plus the float32 arithmetic inside them."""
    u = UNIT_ROUNDOFF[case.dtype]
    single = (16 + math.log2(case["cols"])) * UNIT_ROUNDOFF["f32"]
    smallest = 2.0**-24 if case.dtype == "f16" else 2.0**-126
    roundings, absolute, why = {
        "bias_gelu": (2, u / 4 + 5e-7, "2 roundings, a quarter of the sum's near zero, 1 + erf near -5"),
        "residual_rmsnorm": (3, 0.0, "roundings of the sum, the normalised value and the product"),
        "softmax": (
            11,
            8 * math.exp(-8) * u,
            "3 roundings and one of x - max, which exp multiplies by up to 8",
        ),
        "swiglu": (2, 0.0, "roundings of silu and the product"),
        "cross_entropy": (0, 64 * single, "no rounding but float32's, of logits up to 32 and their sums"),
    }[case.text("op")]
    return Tolerance(
        relative=2 * (roundings * u + single),
        absolute=2 * (absolute + smallest),
        reason=f"twice the passes in {case.dtype}: {why}; plus float32 sums over {case['cols']} elements",
    )


def cost(case: Case) -> Cost:
    """From the list of launches."""
    return _passes.cost(passes(case), _specs(case))


def ideal_bytes(case: Case) -> int:
    """Every input read once, every output written once."""
    specs, named = _specs(case), _ARRAYS[case.text("op")]
    return sum(_passes.size_bytes(specs[name]) for arrays in named for name in arrays)


def bind_cpu(case: Case, inputs: Arrays, outputs: Arrays) -> Callable[[], None]:
    return _passes.bind(passes(case), _specs(case), {**inputs, **outputs})


def _sizes(*shapes: tuple[int, int], without: str = "") -> list[dict[str, int | str]]:
    ops = [op for op in _ARRAYS if op != without]
    return [{"op": op, "rows": rows, "cols": cols} for op in ops for rows, cols in shapes]


def supports(case: Case) -> str:
    """The fused CUDA kernels of the operators that reduce keep a row in registers."""
    if case.text("op") == _TRITON_ONLY and case.backend != "triton":
        return f"{_TRITON_ONLY} has Triton kernels alone"
    if case.backend == "cuda" and case.variant == "fused":
        from flashperf.cuda.fusion import why_not

        return why_not(case.text("op"), _passes.itemsize(case.dtype), case["cols"])
    return ""


MECHANISM = Mechanism(
    name="fusion",
    question="What does one kernel per operator save over a pass per step of its formula?",
    claims=("A10", "B14"),
    variants=dict.fromkeys(("fused", "split"), ("cpu", "cuda", "triton")),
    standard="fused",
    flash="split",
    dtypes=("f32", "bf16", "f16"),
    test_sizes=_sizes((1, 1), (3, 37), (5, 130)),
    bench_sizes=_sizes((64, 1024), (256, 2048), without=_TRITON_ONLY),
    gpu_bench_sizes=_sizes((64, 4096), (8192, 4096)),
    make_inputs=make_inputs,
    outputs=outputs,
    reference=reference,
    cost=cost,
    tolerance=tolerance,
    ideal_bytes=ideal_bytes,
    bind={"cpu": bind_cpu, "cuda": binder("cuda", "fusion"), "triton": binder("triton", "fusion")},
    supports=supports,
)
