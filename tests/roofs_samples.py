"""Small roofs and rooflines with round numbers, for tests of what is made of them."""

from __future__ import annotations

import sample_parts

from flashperf.records import Case, Cost
from flashperf.roofs.model import COMPUTE, DISPATCH, MEMORY, TIMER, Ceiling, Roofs
from flashperf.roofs.points import COLD, WARM, Point, RooflineRun

L1, L2 = 32 << 10, 1 << 20


def spread(value: float) -> tuple[float, ...]:
    """Six processes around a value."""
    return tuple(value * factor for factor in (0.98, 0.99, 1.0, 1.0, 1.01, 1.02))


def roofs() -> Roofs:
    """400 GB/s in L1, 100 in L2, 10 from memory; 200 GFLOP/s in f32, 16 times that in bf16; 100 ns a call."""
    ceilings = []
    for threads in (1, 2):
        for name, size, gbytes in (("L1", L1, 400), ("L2", L2, 100), ("DRAM", 0, 10)):
            for how, share in (("load", 1.0), ("copy", 0.8)):
                values = spread(gbytes * 1e9 * share * threads)
                ceilings.append(Ceiling(MEMORY, name, how, threads, values, size, size // 2))
        for name, how, gflops in (("f32", "fma", 200), ("f32", "scalar", 12), ("bf16", "amx", 3200)):
            ceilings.append(Ceiling(COMPUTE, name, how, threads, spread(gflops * 1e9 * threads)))
    ceilings.append(Ceiling(DISPATCH, "call from Python", "python", 1, spread(100e-9)))
    ceilings.append(Ceiling(DISPATCH, "call in a native sequence", "native", 1, spread(2e-9)))
    ceilings.append(Ceiling(TIMER, "reading the clock", "reading", 1, spread(40e-9)))
    return Roofs(sample_parts.QUIET, tuple(ceilings), 12.0)


def point(
    variant: str,
    seconds: float,
    cost: Cost,
    *,
    mechanism: str = "toy",
    role: str = "",
    cache: str = WARM,
    n: int = 64,
) -> Point:
    """A point whose mechanism has to move half of what its kernels move."""
    case = Case.of(mechanism, variant, "cpu", "f32", {"rows": n, "cols": 1024})
    return Point(case.id, cost, cost.bytes // 2, "f32", cache, role, spread(seconds))


def run() -> RooflineRun:
    """Two mechanisms: one bound by memory, warm and cold, at two sizes; one by arithmetic; one without FLOPs."""
    points = []
    for n in (64, 256):
        fused, split = Cost(10**5 * n, 6000 * n, 2000 * n), Cost(10**5 * n, 12000 * n, 4000 * n, launches=3)
        points += [
            point("fused", 1e-6 * n, fused, role="standard", n=n),
            point("fused", 4e-6 * n, fused, role="standard", n=n, cache=COLD),
            point("split", 2e-6 * n, split, role="flash", n=n),
            point("split", 5e-6 * n, split, role="flash", n=n, cache=COLD),
        ]
    product = Cost(10**9, 10**5, 10**5)
    points += [
        point("packed", 1e-2, product, mechanism="product", role="standard"),
        point("impossible", 1e-3, product, mechanism="product", role="flash"),
        point("copy", 1e-5, Cost(0, 50_000, 50_000), mechanism="moves", role="standard"),
    ]
    return RooflineRun(roofs(), tuple(points), "load 3.00 on 2 cores", ("toy/other: no driver",))
