"""What pinning launches on CUDA: ragged rows by a static partition or a queue (csrc/cuda/pinning.cu)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from flashperf.cuda import launcher
from flashperf.emulator import Launch
from flashperf.records import Arrays, Case

VARIANTS = ("static_partition", "work_queue")

_THREADS = 256


def launches(variant: str, arrays: Mapping[str, Any], blocks: int | None = None) -> list[Launch]:
    """The launch on x (f32), start[rows + 1] (int32) -> y[rows]; ``work_queue`` needs queue[2], zeros."""
    x, start, y = arrays["x"], arrays["start"], arrays["y"]
    rows = y.shape[0]
    grid = (min(blocks or launcher.resident_blocks(), rows),)
    args: tuple[Any, ...] = (x, start, y, np.int32(rows))
    if variant == "work_queue":
        args += (arrays["queue"],)
    return [Launch(variant, grid, (_THREADS,), args)]


def scratch(variant: str) -> Arrays:
    """The queue; every call leaves it as it was."""
    return {"queue": np.zeros(2, np.int32)} if variant == "work_queue" else {}


def bind_cuda(case: Case, inputs: Arrays, outputs: Arrays) -> launcher.EmulatedCall | launcher.GpuCall:
    """Bind a case: inputs x and start, output y."""
    return launcher.bind(
        "pinning",
        lambda arrays: launches(case.variant, arrays),
        inputs,
        outputs,
        scratch(case.variant),
    )
