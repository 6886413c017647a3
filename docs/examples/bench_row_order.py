"""A mechanism of your own with one bench line: does a gather by sorted rows beat one by shuffled rows?

pytest docs/examples/bench_row_order.py
"""

import numpy as np

from flashperf import ArraySpec, Cost, Mechanism, Tolerance
from flashperf.pytest_plugin import bench_cases


def inputs(case):
    rng = np.random.default_rng(case.seed)
    return {
        "table": rng.standard_normal((case["rows"], 64)).astype(np.float32),
        "index": rng.permutation(case["rows"]).astype(np.int64),
    }


def bind(case, inputs, outputs):
    """Return a call without arguments that does all the work of the variant."""
    table, index, total = inputs["table"], inputs["index"], outputs["total"]
    order = index if case.variant == "shuffled" else np.sort(index)

    def run():
        total[...] = table[order].sum(axis=0)

    return run


def cost(case):
    read = case["rows"] * (64 * 4 + 8)
    return Cost(flops=case["rows"] * 64, bytes_read=read, bytes_written=64 * 4)


MECHANISM = Mechanism(
    name="row_order",
    question="Does gathering rows in sorted order pay?",
    claims=(),
    variants={"sorted": ("cpu",), "shuffled": ("cpu",)},
    standard="sorted",
    flash="shuffled",
    dtypes=("f32",),
    test_sizes=({"rows": 7},),
    bench_sizes=({"rows": 20000},),
    make_inputs=inputs,
    outputs=lambda case: {"total": ArraySpec((64,), "f32")},
    reference=lambda case, given: {"total": given["table"].astype(np.float64).sum(axis=0)},
    cost=cost,
    ideal_bytes=lambda case: cost(case).bytes,
    tolerance=lambda case: Tolerance(1e-4, 1e-2, "f32 sums of 20000 normal numbers"),
    bind={"cpu": bind},
)

test_row_order = bench_cases(MECHANISM)
