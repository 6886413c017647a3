"""Wrong implementations of one small mechanism, one wrong thing each: the harness must reject every one.

The right one computes y = x @ w and its row sums; a mutant is a Binder that differs in the named way.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from flashperf.records import Arrays, ArraySpec, Binder, Case, Cost, Mechanism, Tolerance

SIZES = {"m": 24, "n": 20}


def make_inputs(case: Case) -> Arrays:
    """Values with an offset and outliers, so that a dropped term or a transposition shows."""
    rng = np.random.default_rng(case.seed)
    x = (rng.standard_normal((case["m"], case["n"])) + 0.5).astype(np.float32)
    x[0, 0], x[-1, -1] = 30.0, -20.0
    return {"x": x, "w": (rng.standard_normal((case["n"], case["n"])) / 4).astype(np.float32)}


def outputs(case: Case) -> dict[str, ArraySpec]:
    return {"y": ArraySpec((case["m"], case["n"]), "f32"), "sums": ArraySpec((case["m"],), "f32")}


def reference(case: Case, inputs: Arrays) -> Arrays:
    y = inputs["x"].astype(np.float64) @ inputs["w"].astype(np.float64)
    return {"y": y, "sums": y.sum(axis=1)}


def cost(case: Case) -> Cost:
    m, n = case["m"], case["n"]
    return Cost(2 * m * n * n + m * n, 4 * (m * n + n * n), 4 * (m * n + m))


def _compute(inputs: Arrays, out: Arrays) -> None:
    np.matmul(inputs["x"], inputs["w"], out=out["y"])
    np.sum(out["y"], axis=1, out=out["sums"])


def right(case: Case, inputs: Arrays, out: Arrays) -> Callable[[], None]:
    return lambda: _compute(inputs, out)


def _spoiled(spoil: Callable[[Arrays], None]) -> Binder:
    """The right result with something done to it afterwards."""

    def bind(case: Case, inputs: Arrays, out: Arrays) -> Callable[[], None]:
        def call() -> None:
            _compute(inputs, out)
            spoil(out)

        return call

    return bind


def _zeros(out: Arrays) -> None:
    out["y"][...], out["sums"][...] = 0, 0


def _one_element_off(out: Arrays) -> None:
    out["y"][7, 5] += 1e-2


def _nan(out: Arrays) -> None:
    out["y"][3, 4] = np.nan


def _infinite(out: Arrays) -> None:
    out["sums"][2] = np.inf


def _scaled(out: Arrays) -> None:
    out["y"][...] *= 1.001


def _offset(out: Arrays) -> None:
    out["y"][...] += 1e-3


def _shifted(out: Arrays) -> None:
    out["y"][...] = np.roll(out["y"], 1, axis=1)


def _transposed(case: Case, inputs: Arrays, out: Arrays) -> Callable[[], None]:
    def call() -> None:
        np.matmul(inputs["x"], inputs["w"].T, out=out["y"])
        np.sum(out["y"], axis=1, out=out["sums"])

    return call


def _low_precision(case: Case, inputs: Arrays, out: Arrays) -> Callable[[], None]:
    def call() -> None:
        out["y"][...] = inputs["x"].astype(np.float16) @ inputs["w"].astype(np.float16)
        np.sum(out["y"], axis=1, out=out["sums"])

    return call


def _half_written(case: Case, inputs: Arrays, out: Arrays) -> Callable[[], None]:
    def call() -> None:
        half = case["m"] // 2
        np.matmul(inputs["x"][:half], inputs["w"], out=out["y"][:half])
        out["sums"][...] = (inputs["x"] @ inputs["w"]).sum(axis=1)

    return call


def _stale(case: Case, inputs: Arrays, out: Arrays) -> Callable[[], None]:
    _compute(inputs, out)  # all the work at binding time; the call does none
    return lambda: None


def _only_once(case: Case, inputs: Arrays, out: Arrays) -> Callable[[], None]:
    done: list[bool] = []

    def call() -> None:
        if not done:
            _compute(inputs, out)
        done.append(True)

    return call


def _accumulates(case: Case, inputs: Arrays, out: Arrays) -> Callable[[], None]:
    total = np.zeros_like(out["y"])

    def call() -> None:
        total[...] += inputs["x"] @ inputs["w"]
        out["y"][...] = total
        out["sums"][...] = total.sum(axis=1)

    return call


def _modifies_input(case: Case, inputs: Arrays, out: Arrays) -> Callable[[], None]:
    def call() -> None:
        _compute(inputs, out)
        inputs["x"][1, 2] = 0

    return call


def _swaps_arrays(case: Case, inputs: Arrays, out: Arrays) -> Callable[[], None]:
    return _replaces(lambda y: y[:-1], inputs, out)


def _wrong_dtype(case: Case, inputs: Arrays, out: Arrays) -> Callable[[], None]:
    return _replaces(lambda y: y.astype(np.float64), inputs, out)


def _replaces(change: Callable[[np.ndarray], np.ndarray], inputs: Arrays, out: Arrays) -> Callable[[], None]:
    """A call that puts another array in the place of its output."""

    def call() -> None:
        y = inputs["x"] @ inputs["w"]
        out["y"], out["sums"] = change(y), y.sum(axis=1)

    return call


#: name -> (binder, what the reason for rejecting it must contain)
MUTANTS: dict[str, tuple[Binder, str]] = {
    "all_zeros": (_spoiled(_zeros), "above the limit"),
    "one_element_off": (_spoiled(_one_element_off), "y[7, 5]"),
    "low_precision": (_low_precision, "above the limit"),
    "stale_output": (_stale, "never written"),
    "only_once": (_only_once, "never written"),
    "accumulates": (_accumulates, "above the limit"),
    "nan": (_spoiled(_nan), "y[3, 4]"),
    "infinite": (_spoiled(_infinite), "sums[2]"),
    "half_written": (_half_written, "240 of 480 elements never written, first y[12, 0]"),
    "wrong_shape": (_swaps_arrays, "has shape (23, 20)"),
    "wrong_dtype": (_wrong_dtype, "has dtype float64"),
    "input_modified": (_modifies_input, "changed its input x at [1, 2]"),
    "transposed": (_transposed, "above the limit"),
    "scaled": (_spoiled(_scaled), "above the limit"),
    "offset": (_spoiled(_offset), "above the limit"),
    "shifted": (_spoiled(_shifted), "above the limit"),
}


def mechanism(**binders: Binder) -> Mechanism:
    """A mechanism of the right variant and the given others, on the CPU."""
    binders = {"right": right, **binders}

    def bind(case: Case, inputs: Arrays, out: Arrays) -> Callable[[], None]:
        return binders[case.variant](case, inputs, out)

    return Mechanism(
        name="toy",
        question="What does a wrong kernel cost?",
        claims=(),
        variants=dict.fromkeys(binders, ("cpu",)),
        standard="right",
        flash=list(binders)[-1],
        dtypes=("f32",),
        test_sizes=(SIZES,),
        bench_sizes=(SIZES,),
        make_inputs=make_inputs,
        outputs=outputs,
        reference=reference,
        cost=cost,
        ideal_bytes=lambda case: cost(case).bytes,
        tolerance=lambda case: Tolerance(0.0, 2e-5 * math.sqrt(case["n"]), "f32 products of n terms"),
        bind={"cpu": bind},
    )


def case(variant: str = "right", **sizes: int) -> Case:
    """A case of the toy mechanism."""
    return Case.of("toy", variant, "cpu", "f32", SIZES | sizes)
