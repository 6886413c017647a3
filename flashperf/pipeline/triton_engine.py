"""The pipeline's engine with Triton kernels: on a GPU, or in Triton's interpreter where there is none.

Never run on a GPU so far. Memory, graphs and copies are those of ``cuda_engine``; only what a kernel's name launches
differs.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from flashperf.errors import UserError
from flashperf.pipeline.cuda_engine import DeviceEngine, device
from flashperf.pipeline.device import HostDevice, Run


def _tensor(array: Any) -> Any:
    """A tensor on the array's memory, NumPy's or CuPy's; uint16 holds bf16."""
    import torch

    tensor = torch.as_tensor(array)
    return tensor.view(torch.bfloat16) if array.dtype == np.uint16 else tensor


def bind_triton(kernel: str, arrays: Sequence[Any], scalars: Mapping[str, float]) -> Run:
    """The launch of one of the pipeline's kernels, on CuPy's current stream where there is a GPU."""
    from flashperf.kernels._pipeline import launch_of

    launch = launch_of(kernel, [_tensor(array) for array in arrays], scalars)
    if all(isinstance(array, np.ndarray) for array in arrays):
        return launch.run
    return lambda: _on_current_stream(launch.run)


def _on_current_stream(run: Run) -> None:
    """Triton launches on torch's current stream; the device's is CuPy's."""
    import cupy
    import torch

    with torch.cuda.stream(torch.cuda.ExternalStream(cupy.cuda.get_current_stream().ptr)):
        run()


class TritonEngine(DeviceEngine):
    """Triton kernels. Raises UserError where Triton can't run them, not even in its interpreter."""

    def __init__(self) -> None:
        for package in ("triton", "torch"):
            if importlib.util.find_spec(package) is None:
                raise UserError(f"{package} is not installed (pip install 'flashperf[triton]')")
        from flashperf.kernels._products import WIDEN_BF16

        made = device()
        if isinstance(made, HostDevice) != bool(WIDEN_BF16.value):
            raise UserError(
                "TRITON_INTERPRET must be 1 without a GPU, and unset with one and CuPy, before Triton is imported"
            )
        super().__init__(made, bind_triton, "triton")
