"""What a GPU is: its name and the sizes that decide how it is measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

#: A stack of HBM has a bus of 1,024 bits; graphics memory reaches 512 in all.
_HBM_BUS_BITS = 1024


@dataclass(frozen=True)
class GpuProperties:
    """One GPU: streaming multiprocessors, bytes of shared memory on each, of the L2 and of device memory.

    ``memory_bus_bits``: 0 where the runtime doesn't say.
    """

    name: str
    sms: int
    shared_per_sm_bytes: int
    l2_bytes: int
    memory_bytes: int
    memory_bus_bits: int

    @property
    def memory_name(self) -> str:
        """``HBM``, or ``DRAM`` for anything else."""
        return "HBM" if self.memory_bus_bits >= _HBM_BUS_BITS else "DRAM"


def read_properties(runtime: Any = None) -> GpuProperties:
    """Of the current device, as the CUDA runtime gives them through CuPy (``cudaGetDeviceProperties``)."""
    if runtime is None:
        import cupy

        runtime = cupy.cuda.runtime
    found = runtime.getDeviceProperties(runtime.getDevice())
    name = found["name"]
    return GpuProperties(
        name=name.decode() if isinstance(name, bytes) else str(name),
        sms=int(found["multiProcessorCount"]),
        shared_per_sm_bytes=int(found["sharedMemPerMultiprocessor"]),
        l2_bytes=int(found["l2CacheSize"]),
        memory_bytes=int(found["totalGlobalMem"]),
        memory_bus_bits=int(found.get("memoryBusWidth", 0)),
    )
