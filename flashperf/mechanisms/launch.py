"""Launch: what does it cost to issue the same work in many calls?

z = alpha x + y over n elements:

- whole: one call
- chunked: N calls over slices, replayed by one native loop
- chunked_python: the same N prepared calls, each issued from Python, as an eager framework issues its operators

With CUDA a call is a kernel launch, and there are two more variants:

- graph: the N launches of chunked, replayed by one CUDA graph
- persistent: one launch of as many blocks as run at once, which take the N slices from a queue in memory

On a CPU a call is a function call: a stand-in for a kernel launch, which costs microseconds.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from flashperf import native
from flashperf.dtypes import UNIT_ROUNDOFF
from flashperf.mechanisms._elsewhere import binder
from flashperf.records import Arrays, ArraySpec, Case, Cost, Mechanism, Tolerance

ALPHA = 0.75


_QUEUE_BYTES = 8  # the two counters of the persistent kernel's queue


def _calls(case: Case) -> int:
    """Launches of one call. The slices of the GPU kernels are groups of four elements."""
    if case.variant in ("whole", "persistent"):
        return 1
    elements = 1 if case.backend == "cpu" else 4
    return min(case["chunks"], -(-case["n"] // elements))


def make_inputs(case: Case) -> Arrays:
    """x and y, f32 [n]."""
    rng = np.random.default_rng(case.seed)
    return {name: rng.standard_normal(case["n"]).astype(np.float32) for name in ("x", "y")}


def outputs(case: Case) -> dict[str, ArraySpec]:
    """z, f32 [n]."""
    return {"z": ArraySpec((case["n"],), "f32")}


def reference(case: Case, inputs: Arrays) -> Arrays:
    """float64."""
    return {"z": ALPHA * inputs["x"].astype(np.float64) + inputs["y"].astype(np.float64)}


def bind_cpu(case: Case, inputs: Arrays, outputs: Arrays) -> Callable[[], None]:
    """Every slice is prepared once."""
    n, count = case["n"], _calls(case)
    slices = [slice(n * i // count, n * (i + 1) // count) for i in range(count)]
    calls = [
        native.prepare("scale_add_f32", inputs["x"][s], inputs["y"][s], outputs["z"][s], alpha=ALPHA)
        for s in slices
    ]
    if case.variant == "whole":
        return calls[0]
    if case.variant == "chunked":
        return native.Sequence(calls)

    def issue() -> None:
        for call in calls:
            call()

    return issue


def cost(case: Case) -> Cost:
    queue_bytes = _QUEUE_BYTES if case.variant == "persistent" else 0
    n = case["n"]
    return Cost(2 * n, 8 * n + queue_bytes, 4 * n + queue_bytes, launches=_calls(case))


def tolerance(case: Case) -> Tolerance:
    u = UNIT_ROUNDOFF["f32"]
    return Tolerance(4 * u, 16 * u, "twice two roundings of values below about 8")


MECHANISM = Mechanism(
    name="launch",
    question="What does it cost to issue the same work in many calls?",
    claims=("A12",),
    variants={
        "whole": ("cpu", "cuda", "triton"),
        "chunked": ("cpu", "cuda", "triton"),
        "chunked_python": ("cpu",),
        "graph": ("cuda", "triton"),
        "persistent": ("cuda", "triton"),
    },
    standard="whole",
    flash="chunked",
    dtypes=("f32",),
    test_sizes=(
        {"n": 1, "chunks": 4},
        {"n": 37, "chunks": 8},
        {"n": 70, "chunks": 30},
        {"n": 1000, "chunks": 64},
    ),
    bench_sizes=({"n": 4096, "chunks": 64}, {"n": 262144, "chunks": 64}, {"n": 262144, "chunks": 4096}),
    gpu_bench_sizes=(
        {"n": 1 << 20, "chunks": 64},
        {"n": 1 << 20, "chunks": 1024},
        {"n": 1 << 26, "chunks": 64},
    ),
    make_inputs=make_inputs,
    outputs=outputs,
    reference=reference,
    cost=cost,
    ideal_bytes=lambda case: 12 * case["n"],
    tolerance=tolerance,
    bind={"cpu": bind_cpu, "cuda": binder("cuda", "launch"), "triton": binder("triton", "launch")},
    stand_in=dict.fromkeys(("chunked", "chunked_python"), "a kernel launch"),
)
