"""A scripted device for the roofs of a GPU, GPUs, and roofs of one with round numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import sample_parts
from roofs_samples import spread

from flashperf.cuda.roof_subject import GpuRoofSubject
from flashperf.gpu.clock import CantRecordError
from flashperf.gpu.properties import GpuProperties
from flashperf.roofs import COMPUTE, DISPATCH, LINK, MEMORY, SCRATCHPAD, Ceiling, Roofs
from flashperf.roofs.gpu_plan import ALIGNED_BYTES, GpuPlan, Walk

H200 = GpuProperties("NVIDIA H200", 132, 228 << 10, 50 << 20, 141 << 30, 6144)
L4 = GpuProperties("NVIDIA L4", 58, 100 << 10, 48 << 20, 23 << 30, 192)
SAMPLE_S = 1e-3
TINY = GpuPlan(
    sms=1,
    walks=(Walk("L2", 1 << 20, 6 * ALIGNED_BYTES, 2), Walk("HBM", 0, 12 * ALIGNED_BYTES, 1)),
    shared_level_bytes=100 << 10,
    blocks_per_sm=(1, 2),
    shared_steps=4,
    fma_steps=16,
    mma_steps=4,
    link_bytes=1 << 20,
    launches=10,
)


class FakeDevice:
    """Between two events there is always a millisecond, whatever was enqueued; kernels run on the emulator."""

    def __init__(self) -> None:
        self.now_s, self.waits, self.links, self.speeds = 0.0, 0, 0, list[float]()
        self.records, self.library = True, {"f16"}
        self.gives_up = False

    def hold(self, limit_s: float) -> None: ...

    def release(self) -> None: ...

    def gave_up(self) -> bool:
        return self.gives_up

    def event(self) -> float:
        self.now_s += SAMPLE_S
        return self.now_s

    def between_s(self, first: float, last: float) -> float:
        return last - first

    def wait(self) -> None:
        self.waits += 1

    def flush(self) -> None: ...

    def record(self, call: Callable[[], object], times: int) -> Callable[[], object]:
        if not self.records:
            raise CantRecordError("not here")
        return lambda: None

    def sm_clock_mhz(self) -> float | None:
        return self.speeds.pop() if self.speeds else None

    def upload(self, host: np.ndarray) -> np.ndarray:
        return host.copy()

    def download(self, array: np.ndarray) -> np.ndarray:
        return array.copy()

    def repeated(self, host: np.ndarray, elements: int) -> np.ndarray:
        return np.resize(host, elements)

    def link(self, n_bytes: int, to_device: bool, pinned: bool) -> Callable[[], object]:
        self.links += 1
        return lambda: None

    def library_product(self, number_format: str) -> tuple[Callable[[], object], int] | None:
        return (lambda: None, 1000) if number_format in self.library else None


class EmulatedSubject(GpuRoofSubject):
    """What a worker process measures on the scripted device."""

    def __init__(self, plan: dict[str, Any]) -> None:
        super().__init__(plan, FakeDevice())


def gpu_samples() -> Roofs:
    """Roofs of an H200 with round numbers."""
    rows = (
        (SCRATCHPAD, "shared memory", "load", 30e12, 132 * (228 << 10)),
        (MEMORY, "L2", "copy", 6e12, 50 << 20),
        (MEMORY, "HBM", "load", 4e12, 0),
        (MEMORY, "HBM", "copy", 3.9e12, 0),
        (LINK, "host link", "pinned to the device", 50e9, 0),
        (COMPUTE, "f32", "fma", 50e12, 0),
        (COMPUTE, "bf16", "mma.sync", 500e12, 0),
        (COMPUTE, "bf16", "torch", 700e12, 0),
        (COMPUTE, "i8", "mma.sync", 1e15, 0),
        (DISPATCH, "launch, enqueued before", "enqueued", 2e-6, 0),
    )
    ceilings = tuple(Ceiling(kind, name, how, 1, spread(v), size) for kind, name, how, v, size in rows)
    return Roofs(replace(sample_parts.QUIET, device="NVIDIA H200"), ceilings, 20.0, (), "cuda")
