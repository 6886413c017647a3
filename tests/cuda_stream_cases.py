"""Cases of launch, cache, pinning and batching."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from cuda_checks import ROUNDOFF, Built, CudaCase, Expected, unset, values

from flashperf.cuda import batching, cache, launch, pinning
from flashperf.emulator import Launch


def launch_case(variant: str, n: int, count: int) -> CudaCase:
    def build() -> Built:
        x, y, z = values((n,), "f32"), values((n,), "f32", 1), unset((n,), "f32")
        arrays: dict[str, Any] = {"x": x, "y": y, "z": z, **launch.scratch(variant)}
        made = launch.launches(variant, arrays, alpha=1.5, count=count, blocks=3)
        reference = 1.5 * x.astype(np.float64) + y
        bound = 2 * ROUNDOFF["f32"] * (np.abs(1.5 * x) + np.abs(y))
        expected = [Expected(z, "f32", reference, bound)]
        if variant == "persistent":  # it leaves its queue as it was, so that it can be called again
            made *= 2
            expected.append(Expected(arrays["queue"], "i32", np.zeros(2), 0.0))
        return made, expected

    return CudaCase("launch", f"{variant}/n={n}-launches={count}", build)


def cache_case(variant: str, n: int, chunk: int) -> CudaCase:
    def build() -> Built:
        x, y = values((n,), "f32"), unset((n,), "f32")
        t = cache.scratch(x)["t"]
        wide = x.astype(np.float64)
        bound = 6 * ROUNDOFF["f32"] * (wide**2 + np.abs(wide) + 1)
        launches = cache.launches(variant, {"x": x, "t": t, "y": y}, chunk)
        return launches, [Expected(y, "f32", 2 * wide**2 + wide, 2 * bound)]

    return CudaCase("cache", f"{variant}/n={n}-chunk={chunk}", build)


def _ragged(lengths: tuple[int, ...]) -> np.ndarray:
    """Where each sequence starts, and the end of the last."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


def pinning_case(variant: str, lengths: tuple[int, ...], blocks: int) -> CudaCase:
    def build() -> Built:
        start = _ragged(lengths)
        x, y = values((max(1, int(start[-1])),), "f32"), unset((len(lengths),), "f32")
        arrays: dict[str, Any] = {"x": x, "start": start, "y": y, **pinning.scratch(variant)}
        rows = [x[a:b].astype(np.float64) for a, b in pairwise(start)]
        reference = np.array([np.sqrt((row**2).mean()) if row.size else 0.0 for row in rows])
        bound = (max(lengths) + 4) * ROUNDOFF["f32"] * reference
        expected = [Expected(y, "f32", reference, bound)]
        if variant == "work_queue":
            expected.append(Expected(arrays["queue"], "i32", np.zeros(2), 0.0))
        return pinning.launches(variant, arrays, blocks) * 2, expected

    return CudaCase("pinning", f"{variant}/rows={len(lengths)}-blocks={blocks}", build)


def batching_case(variant: str, lengths: tuple[int, ...], k: int, n: int) -> CudaCase:
    def build() -> Built:
        start = _ragged(lengths)
        x, w, y = (
            values((int(start[-1]), k), "f32"),
            values((k, n), "f32", 1),
            unset((int(start[-1]), n), "f32"),
        )
        arrays: dict[str, Any] = {"x": x, "start": start, "w": w, "y": y}
        arrays |= batching.scratch(variant, arrays)
        wide_x, wide_w = x.astype(np.float64), w.astype(np.float64)
        bound = (k + 2) * ROUNDOFF["f32"] * (np.abs(wide_x) @ np.abs(wide_w))
        launches: list[Launch] = batching.launches(variant, arrays, start)
        return launches, [Expected(y, "f32", wide_x @ wide_w, bound)]

    return CudaCase("batching", f"{variant}/sequences={len(lengths)}-k={k}-n={n}", build)


def stream_cases() -> list[CudaCase]:
    cases = []
    for n, count in ((1, 1), (10, 4), (1027, 16), (5000, 3), (70, 4096)):
        cases += [launch_case(variant, n, count) for variant in launch.VARIANTS]
    for n, chunk in ((1, 1), (1030, 300), (4096, 1024)):
        cases += [cache_case(variant, n, chunk) for variant in cache.VARIANTS]
    for lengths, blocks in (((5,), 3), ((0, 700, 1, 33, 0, 256, 90), 3), ((40,) * 11, 4)):
        cases += [pinning_case(variant, lengths, blocks) for variant in pinning.VARIANTS]
    for lengths, k, n in (((3, 1, 7, 6), 20, 36), ((1,), 1, 1), ((130, 2), 19, 33)):
        cases += [batching_case(variant, lengths, k, n) for variant in batching.VARIANTS]
    return cases
