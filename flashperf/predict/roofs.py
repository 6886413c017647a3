"""The least time that a call can take on a named GPU: its bytes, operations and launches over that GPU's roofs.

A prediction from data sheets, not a measurement. It leaves out: caches (bytes that stay in L2 are faster), latency,
occupancy and half-filled SMs, the clock under load, and how far a kernel stays below its roof.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from flashperf.gpus import LAUNCH_S, Gpu
from flashperf.machine_code import KernelCode
from flashperf.records import Case, Cost, Mechanism

#: Format -> the Tensor Core peak that bounds it.
_TENSOR_PEAK = {"tf32": "tf32", "f16": "f16", "bf16": "f16", "i8": "i8"}
_PRODUCTS_PER_DP4A = 4


@dataclass(frozen=True)
class Prediction:
    """Least seconds by each roof; the largest of them is the bound. ``unit`` multiplies: ``f32``, ``dp4a``, a peak."""

    case_id: str
    gpu: str
    unit: str
    memory_s: float
    compute_s: float
    launch_s: float

    @property
    def seconds(self) -> float:
        """The largest of the three: no such call can be faster on this GPU, if its Cost is right."""
        return max(self.memory_s, self.compute_s, self.launch_s)

    @property
    def bound(self) -> str:
        """Which roof that is: "memory", "compute" or "launch"."""
        by_name = {"memory": self.memory_s, "compute": self.compute_s, "launch": self.launch_s}
        return max(by_name, key=lambda name: by_name[name])


def unit_of(number_format: str, kernels: Iterable[KernelCode] | None) -> str:
    """Which unit multiplies: a Tensor Core peak, ``dp4a`` or the FMA units (``f32``).

    From the machine code of the kernels where there is any, else from the format in which they multiply.
    """
    if kernels is None:
        return _TENSOR_PEAK.get(number_format, "f32")
    code = list(kernels)
    if any(kernel.tensor_core for kernel in code):
        return _TENSOR_PEAK.get(number_format, "f16")
    return "dp4a" if number_format == "i8" and any(kernel.count("DP4A") for kernel in code) else "f32"


def peak(gpu: Gpu, unit: str) -> float:
    """Operations per second of a unit. DP4A makes four products and sums, at most as often as an FMA issues."""
    if unit == "dp4a":
        return _PRODUCTS_PER_DP4A * gpu.peaks["f32"]
    return gpu.peaks[unit]


def predict(case_id: str, cost: Cost, unit: str, gpu: Gpu, filled: float = 1.0) -> Prediction:
    """The least time of one call. ``filled``: the part of the SMs that its blocks can keep busy, for the arithmetic."""
    return Prediction(
        case_id,
        gpu.name,
        unit,
        cost.bytes / gpu.bytes_per_s,
        cost.flops / (peak(gpu, unit) * min(1.0, filled)),
        cost.launches * LAUNCH_S,
    )


def predict_case(
    mechanism: Mechanism, case: Case, gpu: Gpu, kernels: Iterable[KernelCode] | None = None
) -> Prediction:
    """As ``predict``, for a case with its declared Cost and the kernels of its variant."""
    return predict(case.id, mechanism.cost(case), unit_of(mechanism.arithmetic(case), kernels), gpu)
