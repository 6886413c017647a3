"""Cache: what does the order of a producer and its consumer cost, when the work and the bytes are the same?

t = x^2 + x is produced, y = 2 t - x is consumed:

- chunked: both on one chunk after another, so that the consumer finds its part of t, and of x, in the cache
- whole: the producer over everything, then the consumer: t has left the cache by then if it is larger

The kernels are the same, and so is what each reads and writes: the order decides where it is read from. Chunks
have a size of their own in each case; one array of the largest case is larger than the caches of a core.
`bench/cache_hits.py` prints how often loads hit in each cache: counted by the processor where it shows that, else
simulated.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from flashperf import native
from flashperf.dtypes import UNIT_ROUNDOFF, aligned_empty
from flashperf.mechanisms._elsewhere import binder
from flashperf.records import Arrays, ArraySpec, Case, Cost, Mechanism, Tolerance

KERNELS = ("produce", "consume")


def parts(variant: str, n: int, chunk: int) -> list[slice]:
    """The slices of n elements that are produced and consumed in turn. Chunks are multiples of 4 elements."""
    size = n if variant == "whole" else 4 * -(-min(chunk, n) // 4)
    return [slice(first, min(first + size, n)) for first in range(0, n, size)]


def make_inputs(case: Case) -> Arrays:
    """x, f32 [n]."""
    return {"x": np.random.default_rng(case.seed).standard_normal(case["n"], dtype=np.float32)}


def outputs(case: Case) -> dict[str, ArraySpec]:
    """y, f32 [n]."""
    return {"y": ArraySpec((case["n"],), "f32")}


def reference(case: Case, inputs: Arrays) -> Arrays:
    """float64: 2 (x^2 + x) - x."""
    x = inputs["x"].astype(np.float64)
    return {"y": 2 * x * x + x}


def bind_cpu(case: Case, inputs: Arrays, outputs: Arrays) -> Callable[[], None]:
    """Every slice is prepared once; t is allocated here, whole, for every variant."""
    x, y = inputs["x"], outputs["y"]
    t = aligned_empty(x.shape, "f32")
    t[...] = 0  # its pages are there before the first call
    calls = []
    for part in parts(case.variant, case["n"], case["chunk"]):
        calls.append(native.prepare("cache_produce", x[part], t[part]))
        calls.append(native.prepare("cache_consume", t[part], x[part], y[part]))
    return native.Sequence(calls)


def cost(case: Case) -> Cost:
    """A launch of each kernel per slice: the producer reads x, the consumer t and x; t and y are written."""
    n, slices = case["n"], len(parts(case.variant, case["n"], case["chunk"]))
    return Cost(4 * n, 12 * n, 8 * n, launches=len(KERNELS) * slices)


def tolerance(case: Case) -> Tolerance:
    u = UNIT_ROUNDOFF["f32"]
    # t and y are rounded four times in all, at sizes of up to 3 x^2 + 1; y itself may be near zero.
    return Tolerance(16 * u, 16 * u, "twice four roundings of terms that are at most 3 |y| + 1")


MECHANISM = Mechanism(
    name="cache",
    question="What does it cost to consume a result after it has left the cache?",
    claims=("A10",),
    variants=dict.fromkeys(("chunked", "whole"), ("cpu", "cuda", "triton")),
    standard="chunked",
    flash="whole",
    dtypes=("f32",),
    test_sizes=({"n": 1, "chunk": 4}, {"n": 1030, "chunk": 300}, {"n": 4096, "chunk": 1024}),
    # Three arrays: 192 KiB, in a second-level cache; 12 MiB, beyond it; 192 MiB, beyond most third-level caches.
    bench_sizes=(
        {"n": 1 << 14, "chunk": 1 << 13},
        {"n": 1 << 20, "chunk": 1 << 14},
        {"n": 1 << 24, "chunk": 1 << 14},
    ),
    # 12 MiB in all, in L2; 768 MiB, by chunks of which three arrays have 12 MiB.
    gpu_bench_sizes=({"n": 1 << 20, "chunk": 1 << 18}, {"n": 1 << 26, "chunk": 1 << 20}),
    make_inputs=make_inputs,
    outputs=outputs,
    reference=reference,
    cost=cost,
    ideal_bytes=lambda case: 8 * case["n"],
    tolerance=tolerance,
    bind={"cpu": bind_cpu, "cuda": binder("cuda", "cache"), "triton": binder("triton", "cache")},
)
