"""Graph: what does it cost to dispatch each operator, beside what the operator does?

A chain of ``ops`` operators over n elements, z = y + x: each adds x / ops.

- planned: every call checked and bound once, all replayed by one native call; a captured CUDA graph
- issued: the same bound calls, each issued from Python
- eager: every call checked and bound anew from Python before it runs, as eager mode dispatches

``bench/dispatch_cost.py`` fits t = a + b ops, with intervals: b is the cost of an operator's dispatch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from flashperf import native
from flashperf.dtypes import UNIT_ROUNDOFF, aligned_empty
from flashperf.records import Arrays, ArraySpec, Case, Cost, Mechanism, Tolerance

_KERNEL = "scale_add_f32"


@dataclass(frozen=True)
class LineFit:
    """t = a_s + b_s * n by least squares; ``residual_s``: root mean square of what is left."""

    a_s: float
    b_s: float
    residual_s: float


def fit_line(counts: Sequence[int], seconds: Sequence[float]) -> LineFit:
    """The line through (count, seconds). Raises ValueError for fewer than three different counts."""
    if len(set(counts)) < 3:
        raise ValueError("a line and its residual need three different counts")
    design = np.stack([np.ones(len(counts)), np.array(counts, float)], axis=1)
    (a, b), *_ = np.linalg.lstsq(design, np.array(seconds, float), rcond=None)
    left = np.array(seconds) - design @ (a, b)
    return LineFit(float(a), float(b), float(np.sqrt(np.mean(left**2))))


def make_inputs(case: Case) -> Arrays:
    """x and y, f32 [n]."""
    rng = np.random.default_rng(case.seed)
    return {name: rng.standard_normal(case["n"]).astype(np.float32) for name in ("x", "y")}


def outputs(case: Case) -> dict[str, ArraySpec]:
    """z, f32 [n]."""
    return {"z": ArraySpec((case["n"],), "f32")}


def reference(case: Case, inputs: Arrays) -> Arrays:
    """float64, with the factor that the operators get."""
    factor = case["ops"] * float(np.float32(1 / case["ops"]))
    return {"z": inputs["y"].astype(np.float64) + factor * inputs["x"].astype(np.float64)}


def _chain(case: Case, inputs: Arrays, z: np.ndarray) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Arrays of every operator: sums go to and fro between two buffers, the last one into z."""
    between = [aligned_empty((case["n"],), "f32") for _ in range(2)]
    places = [inputs["y"], *(between[i % 2] for i in range(case["ops"] - 1)), z]
    return [(inputs["x"], places[i], places[i + 1]) for i in range(case["ops"])]


def bind_cpu(case: Case, inputs: Arrays, outputs: Arrays) -> Callable[[], None]:
    library, factor = native.library(), 1 / case["ops"]
    chain = _chain(case, inputs, outputs["z"])
    if case.variant == "eager":

        def eager() -> None:
            for arrays in chain:
                library.prepare(_KERNEL, *arrays, alpha=factor)()

        return eager
    calls = [library.prepare(_KERNEL, *arrays, alpha=factor) for arrays in chain]
    if case.variant == "planned":
        return native.Sequence(calls)

    def issue() -> None:
        for call in calls:
            call()

    return issue


def cost(case: Case) -> Cost:
    n, ops = case["n"], case["ops"]
    return Cost(2 * n * ops, 8 * n * ops, 4 * n * ops, launches=ops)


def tolerance(case: Case) -> Tolerance:
    u, ops = UNIT_ROUNDOFF["f32"], case["ops"]
    return Tolerance(2 * (ops + 1) * u, 16 * (ops + 1) * u, f"twice {ops} roundings of sums below about 8")


MECHANISM = Mechanism(
    name="graph",
    question="What does dispatching each operator cost, beside what the operator does?",
    claims=("A13", "A16", "B4"),
    variants=dict.fromkeys(("planned", "issued", "eager"), ("cpu",)),
    standard="planned",
    flash="eager",
    dtypes=("f32",),
    test_sizes=({"ops": 1, "n": 1}, {"ops": 2, "n": 37}, {"ops": 33, "n": 100}),
    bench_sizes=({"ops": 64, "n": 192}, {"ops": 64, "n": 65536}),
    make_inputs=make_inputs,
    outputs=outputs,
    reference=reference,
    cost=cost,
    ideal_bytes=lambda case: 12 * case["n"],
    tolerance=tolerance,
    bind={"cpu": bind_cpu},
    stand_in={"planned": "a captured CUDA graph"},
)
