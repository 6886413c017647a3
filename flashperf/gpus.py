"""GPUs by name: what their makers say that they can do at most. Pure; nothing here was measured.

Peaks are dense (without structured sparsity), with f32 sums, at the boost clock. A kernel that is ready for it
reaches 60 to 90 % of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flashperf.errors import UserError
from flashperf.suggest import unknown_name

_TERA, _MIB = 1e12, 1 << 20

#: What launching one kernel from an idle stream takes at least, end to end, as an assumption: 2 to 5 µs are commonly
#: measured for an empty kernel from C++ on these GPUs, and enqueued launches follow each other at about this pace.
LAUNCH_S = 2.5e-6
#: The same for a kernel inside a CUDA graph: an assumption too; 1 to 2 µs are commonly measured between small nodes.
GRAPH_LAUNCH_S = 1.5e-6


@dataclass(frozen=True)
class Gpu:
    """One GPU.

    architecture: what nvcc compiles for it; sms: streaming multiprocessors; l2_bytes: of the whole GPU
    peaks: unit -> operations per second: ``f32`` (FMA units, FFMA), ``tf32``, ``f16`` (bf16 alike) and ``i8``
        (Tensor Cores); link_bytes_per_s: PCIe, one direction; source: where the figures are printed
    """

    name: str
    title: str
    architecture: str
    sms: int
    l2_bytes: int
    bytes_per_s: float
    peaks: Mapping[str, float]
    source: str
    link_bytes_per_s: float = 32e9  # PCIe 4.0 x16


def _peaks(f32: float, tf32: float, f16: float, i8: float) -> dict[str, float]:
    return {"f32": f32 * _TERA, "tf32": tf32 * _TERA, "f16": f16 * _TERA, "i8": i8 * _TERA}


_HOPPER = "NVIDIA H100 Tensor Core GPU Architecture white paper, appendix A (H100 SXM5)"
_PCIE_5_BYTES_PER_S = 64e9
_ADA = "NVIDIA Ada GPU Architecture white paper, appendix A"

GPUS: dict[str, Gpu] = {
    gpu.name: gpu
    for gpu in (
        Gpu(
            "a100",
            "A100 SXM4 80 GB",
            "sm_80",
            108,
            40 * _MIB,
            2.039e12,
            _peaks(19.5, 156, 312, 624),
            "NVIDIA A100 Tensor Core GPU data sheet (80 GB SXM); SMs and L2: A100 architecture white paper, table 4",
        ),
        Gpu(
            "h100",
            "H100 SXM5 80 GB",
            "sm_90a",
            132,
            50 * _MIB,
            3.35e12,
            _peaks(66.9, 494.7, 989.4, 1978.9),
            _HOPPER,
            _PCIE_5_BYTES_PER_S,
        ),
        Gpu(
            "h200",
            "H200 SXM 141 GB",
            "sm_90a",
            132,
            50 * _MIB,
            4.8e12,
            _peaks(66.9, 494.7, 989.4, 1978.9),
            f"NVIDIA H200 Tensor Core GPU data sheet (memory); same chip as {_HOPPER}",
            _PCIE_5_BYTES_PER_S,
        ),
        Gpu(
            "b200",
            "B200 SXM (HGX, 1000 W)",
            "sm_100",
            148,
            126 * _MIB,
            8.0e12,
            _peaks(80, 1100, 2250, 4500),
            "NVIDIA Blackwell Architecture technical brief (HGX B200, per GPU); SMs and L2 are what "
            "cudaGetDeviceProperties is reported to return: the brief has neither",
            _PCIE_5_BYTES_PER_S,
        ),
        Gpu(
            "l4",
            "L4",
            "sm_89",
            58,
            48 * _MIB,
            3.0e11,
            _peaks(30.3, 60, 121, 242.5),
            f"NVIDIA L4 Tensor Core GPU data sheet (half of the figures with sparsity); L2: {_ADA}",
        ),
        Gpu(
            "rtx4090",
            "GeForce RTX 4090",
            "sm_89",
            128,
            72 * _MIB,
            1.008e12,
            _peaks(82.6, 82.6, 165.2, 660.6),
            f"{_ADA} (GeForce RTX 4090)",
        ),
    )
}


#: What the driver calls them -> which one it is. Others of the family (PCIe, NVL, 40 GB) have figures of their own.
_DEVICE_NAMES = {
    "NVIDIA A100-SXM4-80GB": "a100",
    "NVIDIA H100 80GB HBM3": "h100",
    "NVIDIA H200": "h200",
    "NVIDIA B200": "b200",
    "NVIDIA L4": "l4",
    "NVIDIA GeForce RTX 4090": "rtx4090",
}


def of_device(name: str) -> Gpu | None:
    """The GPU that a driver calls ``name``; None where no data sheet of exactly that one is known."""
    key = _DEVICE_NAMES.get(name)
    return GPUS[key] if key else None


def gpu(name: str) -> Gpu:
    """The GPU called ``name``. Raises UserError with the known ones for any other: nothing is guessed."""
    found = GPUS.get(name.lower().replace(" ", "").replace("-", ""))
    if found is None:
        raise UserError(unknown_name("GPU", name, GPUS))
    return found
