"""Matrix products of NumPy integers: half the bytes of float64, and no BLAS."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from flashperf.cases.definition import Built, Expectation, OpenCase, Point, Proof


def _make(path: str, sizes: Mapping[str, int], seed: int) -> Built:
    n = sizes["n"]
    whole = np.random.default_rng(seed).integers(-100, 100, (2, n, n), dtype=np.int32)
    a, b = whole if path != "float64" else whole.astype(np.float64)

    def product() -> np.ndarray:
        return a @ b

    def cast_back() -> np.ndarray:
        return (a.astype(np.float64) @ b.astype(np.float64)).astype(np.int32)

    def reference() -> np.ndarray:
        return whole[0].astype(np.float64) @ whole[1].astype(np.float64)

    facts = {"operand_bits": 8 * a.itemsize, "casts": int(path == "cast_back")}
    call = cast_back if path == "cast_back" else product
    proof = Proof(result="float64" if path == "float64" else "int32")
    return Built(call, reference, 1e-12, facts, proof=proof)


CASE = OpenCase(
    id="C1",
    name="integer-products",
    title="Matrix products of integers in NumPy",
    source="numpy/numpy#14556",
    reported="Multiplying integer matrices of 1000 x 1000 took 2.44 s; converted to float64, multiplied and converted "
    "back, 37 ms.",
    axis="n",
    baseline="float64",
    optimised="int32",
    others=("cast_back",),
    make=_make,
    points=tuple(Point({"n": n}, n) for n in (4, 16, 64, 256)),
    headline=3,
    expectation=Expectation("slower", "no hardware path"),
)
