"""Pinning: who does which rows, when rows differ in length?

The root of the mean of squares of rows that come longest first, as ``pack_padded_sequence`` of PyTorch wants them.
Unlike every other mechanism's, these CPU kernels use threads, as many as the case's size ``threads`` says:

- work_queue: each worker takes the next row, an atomic addition per row
- static_partition: each worker has its share of the rows beforehand, as many as the others; ``schedule(static)``,
  the default of OpenMP in GCC
- pinned_queue, pinned_partition: the same with every thread bound to one core (``OMP_PROC_BIND=true``), from which
  it can't move when something else runs there. CPU only

With CUDA the workers are blocks that stay resident, and the number of them is the GPU's; ``threads`` says nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import pairwise

import numpy as np

from flashperf import native
from flashperf.dtypes import UNIT_ROUNDOFF
from flashperf.mechanisms import _ragged
from flashperf.mechanisms._elsewhere import binder
from flashperf.records import Arrays, ArraySpec, Case, Cost, Mechanism, Tolerance

MOST_THREADS = 256
_QUEUE_BYTES = 8  # the two counters of the CUDA kernel's queue
_SUMS = 16  # that a row is added up in, on the narrowest CPU


def lengths(case: Case) -> np.ndarray:
    """Values of each row, int64 [rows], the longest first, from the case's seed."""
    return np.sort(_ragged.lengths(case.seed, case["rows"], case["values"], case["longest"]))[::-1]


def make_inputs(case: Case) -> Arrays:
    """x, f32 [values]; start [rows + 1], i32: where each row begins, and the end of the last."""
    x = np.random.default_rng(case.seed).standard_normal(case["values"], dtype=np.float32)
    return {"x": x, "start": _ragged.starts(lengths(case))}


def outputs(case: Case) -> dict[str, ArraySpec]:
    """y, f32 [rows]."""
    return {"y": ArraySpec((case["rows"],), "f32")}


def reference(case: Case, inputs: Arrays) -> Arrays:
    """float64."""
    rows = (inputs["x"][first:end].astype(np.float64) for first, end in pairwise(inputs["start"]))
    return {"y": np.array([np.sqrt((row * row).mean()) for row in rows])}


def bind_cpu(case: Case, inputs: Arrays, outputs: Arrays) -> Callable[[], None]:
    """Threads are started by the first call that needs as many, and wait between calls."""
    kernel = "rows_by_queue" if case.variant.endswith("queue") else "rows_by_partition"
    pinned = case.variant.startswith("pinned")
    return native.prepare(
        kernel, inputs["x"], inputs["start"], outputs["y"], threads=case["threads"], pinned=int(pinned)
    )


def supports(case: Case) -> str:
    """Binding a thread to a core is Linux's; a pool has an end; rows of such lengths must exist."""
    if case["threads"] > MOST_THREADS:
        return f"pinning starts at most {MOST_THREADS} threads, not {case['threads']}"
    if case.variant.startswith("pinned") and not sys.platform.startswith("linux"):
        return f"threads are not bound to cores on {sys.platform}"
    return _ragged.impossible(case["rows"], case["values"], case["longest"])


def cost(case: Case) -> Cost:
    queue_bytes = _QUEUE_BYTES if case.backend == "cuda" and case.variant == "work_queue" else 0
    flops = 2 * case["values"] + 2 * case["rows"]
    read = 4 * case["values"] + 4 * (case["rows"] + 1)
    return Cost(flops, read + queue_bytes, 4 * case["rows"] + queue_bytes)


def ideal_bytes(case: Case) -> int:
    """x and the starts read once, y written once."""
    return 4 * (case["values"] + 2 * case["rows"] + 1)


def tolerance(case: Case) -> Tolerance:
    u, in_series = UNIT_ROUNDOFF["f32"], case["longest"] / _SUMS
    reason = f"twice: {in_series:.0f} additions in series at most, halved by the root, and four roundings"
    return Tolerance(2 * (in_series / 2 + 4) * u, 0.0, reason)


def _sizes(*sizes: tuple[int, int, int, int]) -> list[dict[str, int | str]]:
    return [dict(zip(("rows", "values", "longest", "threads"), size, strict=True)) for size in sizes]


MECHANISM = Mechanism(
    name="pinning",
    question="What does it cost to decide beforehand which worker does which rows, and where it runs?",
    claims=("B11",),
    variants={
        "work_queue": ("cpu", "cuda"),
        "static_partition": ("cpu", "cuda"),
        "pinned_queue": ("cpu",),
        "pinned_partition": ("cpu",),
    },
    standard="work_queue",
    flash="static_partition",
    dtypes=("f32",),
    test_sizes=_sizes((1, 1, 1, 2), (2, 4, 3, 2), (9, 300, 150, 2), (33, 2000, 257, 2)),
    bench_sizes=_sizes((1024, 1 << 23, 1 << 16, 2), (1024, 1 << 23, 1 << 16, 4)),
    gpu_bench_sizes=_sizes((4096, 1 << 26, 1 << 20, 1), (65536, 1 << 24, 1 << 14, 1)),
    make_inputs=make_inputs,
    outputs=outputs,
    reference=reference,
    cost=cost,
    ideal_bytes=ideal_bytes,
    tolerance=tolerance,
    bind={"cpu": bind_cpu, "cuda": binder("cuda", "pinning")},
    supports=supports,
)
