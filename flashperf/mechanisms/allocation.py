"""Allocation: what do buffers cost that are asked for anew, or that lie in a badly cut pool?

z = x + y in ``blocks`` pieces of varied sizes; each goes through a buffer of its own, t = x, z = t + y.

- reused: buffers made once, on 64-byte boundaries
- fresh: given back to the system and asked for again on every call; each page is then found, zeroed and mapped
  at the first touch. ``cudaMalloc`` for every tensor (PYTORCH_NO_CUDA_MEMORY_CACHING=1), or a heap that trims
- fixed_pool: cut out of one block, each behind the last and a header of 16 bytes: vector loads straddle cache
  lines; the contexts of ggml (GGML_MEM_ALIGN)

``bench/fragmentation.py`` prints page faults, and what a pool loses to holes when sizes vary (``FirstFit``).
"""

from __future__ import annotations

import mmap
from collections.abc import Callable

import numpy as np

from flashperf import native
from flashperf.dtypes import UNIT_ROUNDOFF, aligned_empty
from flashperf.records import Arrays, ArraySpec, Case, Cost, Mechanism, Tolerance

PAGE_BYTES = 4096
_HEADER_BYTES = _ALIGN_BYTES = 16


def pieces(case: Case) -> list[slice]:
    """Ranges of varied sizes that cover n elements; the first are the smallest."""
    n, blocks = case["n"], min(case["blocks"], case["n"])
    ends = [n * (i + 1) * (i + 2) // (blocks * (blocks + 1)) for i in range(blocks)]
    return [slice(begin, end) for begin, end in zip([0, *ends], ends, strict=False) if end > begin]


def make_inputs(case: Case) -> Arrays:
    """x and y, f32 [n]."""
    rng = np.random.default_rng(case.seed)
    return {name: rng.standard_normal(case["n"]).astype(np.float32) for name in ("x", "y")}


def outputs(case: Case) -> dict[str, ArraySpec]:
    """z, f32 [n]."""
    return {"z": ArraySpec((case["n"],), "f32")}


def reference(case: Case, inputs: Arrays) -> Arrays:
    """float64."""
    return {"z": inputs["x"].astype(np.float64) + inputs["y"]}


def _buffers(case: Case, sizes: list[int]) -> tuple[list[np.ndarray], list[native.Call]]:
    """The buffers, f32, and for ``fresh`` the calls that renew each."""
    if case.variant == "reused":
        return [aligned_empty((size,), "f32") for size in sizes], []
    if case.variant == "fixed_pool":
        return _cut_pool(sizes), []
    regions = [
        np.frombuffer(mmap.mmap(-1, -(-4 * size // PAGE_BYTES) * PAGE_BYTES), np.uint8) for size in sizes
    ]
    renew = [native.prepare("fresh_pages", region) for region in regions]
    return [region[: 4 * size].view(np.float32) for region, size in zip(regions, sizes, strict=True)], renew


def _cut_pool(sizes: list[int]) -> list[np.ndarray]:
    """Blocks of one pool, each behind the last."""
    offsets, end = [], 0
    for size in sizes:
        begin = -(-end // _ALIGN_BYTES) * _ALIGN_BYTES + _HEADER_BYTES
        offsets.append(begin)
        end = begin + 4 * size
    pool = aligned_empty((end,), "u8")
    return [
        pool[begin : begin + 4 * size].view(np.float32) for begin, size in zip(offsets, sizes, strict=True)
    ]


def bind_cpu(case: Case, inputs: Arrays, outputs: Arrays) -> Callable[[], None]:
    """One sequence; a fresh buffer is asked for just before it is written."""
    parts = pieces(case)
    buffers, renew = _buffers(case, [part.stop - part.start for part in parts])
    calls = []
    for number, (part, buffer) in enumerate(zip(parts, buffers, strict=True)):
        calls += renew[number : number + 1]
        calls.append(native.prepare("copy_f32", inputs["x"][part], buffer))
        calls.append(native.prepare("add_f32", buffer, inputs["y"][part], outputs["z"][part]))
    return native.Sequence(calls)


def cost(case: Case) -> Cost:
    """A copy and an addition; ``fresh``: each page is zeroed too."""
    n, parts = case["n"], pieces(case)
    work = Cost(n, 12 * n, 8 * n, launches=2 * len(parts))
    if case.variant != "fresh":
        return work
    pages = sum(-(-4 * (part.stop - part.start) // PAGE_BYTES) for part in parts)
    return work + Cost(0, 0, pages * PAGE_BYTES, launches=len(parts), allocations=len(parts))


def tolerance(case: Case) -> Tolerance:
    u = UNIT_ROUNDOFF["f32"]
    return Tolerance(2 * u, 16 * u, "twice one rounding of values below about 8")


MECHANISM = Mechanism(
    name="allocation",
    question="What do buffers cost that are asked for anew, or that lie in a badly cut pool?",
    claims=("A17", "B5"),
    variants=dict.fromkeys(("reused", "fresh", "fixed_pool"), ("cpu",)),
    standard="reused",
    flash="fixed_pool",
    dtypes=("f32",),
    test_sizes=({"n": 1, "blocks": 3}, {"n": 37, "blocks": 5}, {"n": 5000, "blocks": 4}),
    bench_sizes=({"n": 8192, "blocks": 16}, {"n": 1 << 20, "blocks": 16}),
    make_inputs=make_inputs,
    outputs=outputs,
    reference=reference,
    cost=cost,
    ideal_bytes=lambda case: 12 * case["n"],
    tolerance=tolerance,
    bind={"cpu": bind_cpu},
    stand_in={"fresh": "cudaMalloc"},
)
