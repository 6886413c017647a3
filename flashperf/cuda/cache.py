"""What cache launches on CUDA: t = x^2 + x, y = 2 t - x, whole or chunk by chunk (csrc/cuda/cache.cu)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from flashperf.cuda import launcher
from flashperf.cuda.launcher import ceil_div
from flashperf.emulator import Launch
from flashperf.mechanisms.cache import parts
from flashperf.records import Arrays, Case

VARIANTS = ("chunked", "whole")

_THREADS = 256


def launches(variant: str, arrays: Mapping[str, Any], chunk: int) -> list[Launch]:
    """The launches on x[n], t[n] (scratch), y[n], f32: 2 for ``whole``, else 2 per ``chunk`` elements."""
    x, t, y = arrays["x"], arrays["t"], arrays["y"]
    made = []
    for part in parts(variant, x.shape[0], chunk):
        count = part.stop - part.start
        grid, place = (ceil_div(count, 4 * _THREADS),), (np.int64(part.start), np.int32(count))
        made.append(Launch("produce", grid, (_THREADS,), (x, t, *place)))
        made.append(Launch("consume", grid, (_THREADS,), (t, x, y, *place)))
    return made


def scratch(x: np.ndarray) -> Arrays:
    """What lies between the producer and the consumer."""
    return {"t": np.full(x.shape, np.nan, np.float32)}


def bind_cuda(case: Case, inputs: Arrays, outputs: Arrays) -> launcher.EmulatedCall | launcher.GpuCall:
    """Bind a case: input x, output y; sizes n and ``chunk`` (elements)."""
    return launcher.bind(
        "cache",
        lambda arrays: launches(case.variant, arrays, case["chunk"]),
        inputs,
        outputs,
        scratch(inputs["x"]),
    )
