"""Cases of the roofs: streams over global and shared memory, peaks of every unit, all exact."""

from __future__ import annotations

from typing import Any

import numpy as np
from cuda_checks import Built, CudaCase, Expected, unset

from flashperf.cuda import roofs

THREADS, WARPS, IN_FLIGHT = 256, 8, 4


def warp_sums(x: np.ndarray, blocks: int, passes: int) -> np.ndarray:
    """What each warp of stream_load reads: its lanes of every part of its block, four accesses 256 groups apart."""
    parts = x.astype(np.float64).reshape(-1, IN_FLIGHT, WARPS, 32 * 4).sum(axis=(1, 3))
    sums = np.zeros((blocks, WARPS))
    for again in range(passes):
        for block in range(blocks):
            sums[block] += parts[(block + again) % blocks :: blocks].sum(axis=0)
    return sums.ravel()


def walk_case(where: str, pattern: str, elements: int, blocks: int, again: int) -> CudaCase:
    def build() -> Built:
        host = [roofs.integers(elements, seed) for seed in range(max(1, roofs.PATTERNS[pattern] - 1))]
        make = roofs.stream if where == "stream" else roofs.shared
        y = unset((roofs.sums_of(blocks) if pattern == "load" else elements,), "f32")
        wanted: Any = roofs.moved(pattern, host)
        if pattern == "load":
            by_warp = warp_sums if where == "stream" else roofs.shared_sums
            wanted = by_warp(host[0], blocks, again)
        return [make(pattern, [*host, y], blocks, again)], [Expected(y, "f32", wanted, 0.0)]

    return CudaCase("roofs", f"{where}_{pattern}/n={elements}-blocks={blocks}-again={again}", build)


def peak_case(number_format: str, blocks: int, steps: int) -> CudaCase:
    def build() -> Built:
        operands, y = roofs.operands(number_format, steps), roofs.peak_result(number_format, blocks)
        wanted = roofs.peak_expected(number_format, operands, blocks, steps)
        kind = "i32" if number_format == "i8" else "f32"
        return [roofs.peak(number_format, [*operands, y], blocks, steps)], [Expected(y, kind, wanted, 0.0)]

    return CudaCase("roofs", f"peak_{number_format}/blocks={blocks}-steps={steps}", build)


def roof_cases() -> list[CudaCase]:
    """Fewer parts than blocks, as many, more; steps that are no multiple of what is unrolled."""
    cases = [CudaCase("roofs", "empty", lambda: ([roofs.empty()], []))]
    for pattern in roofs.PATTERNS:
        for parts, blocks, passes in ((1, 3, 1), (3, 3, 4), (5, 2, 3)):
            cases.append(walk_case("stream", pattern, parts * roofs.PER_BLOCK, blocks, passes))
        for elements, blocks, steps in ((1024, 1, 1), (2048, 2, 11), (4096, 1, 4)):
            cases.append(walk_case("shared", pattern, elements, blocks, steps))
    for number_format in roofs.UNITS:
        cases += [peak_case(number_format, 1, 1), peak_case(number_format, 2, 7)]
    return cases
