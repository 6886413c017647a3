"""Memory, copies and library products of an NVIDIA GPU, for its roofs. Never run on a GPU so far."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np

from flashperf.errors import EXIT_FAILED, UserError
from flashperf.gpu.cupy_events import CupyEvents, current_stream

PRODUCT_SIZE = 8192  # rows, columns and depth: large enough for every SM, small enough for every GPU


class CupyRoofDevice(CupyEvents):
    """Device 0, through CuPy; products through torch where it is installed."""

    def upload(self, host: np.ndarray) -> Any:
        return self._cupy.asarray(host)

    def download(self, array: Any) -> np.ndarray:
        self.wait()
        return np.asarray(array.get())

    def repeated(self, host: np.ndarray, elements: int) -> Any:
        return self._cupy.resize(self._cupy.asarray(host), elements)

    def link(self, n_bytes: int, to_device: bool, pinned: bool) -> Callable[[], object]:
        import cupyx

        runtime = self._cupy.cuda.runtime
        host = cupyx.zeros_pinned((n_bytes,), np.uint8) if pinned else np.zeros((n_bytes,), np.uint8)
        host[...] = np.random.default_rng(0).integers(0, 256, n_bytes, np.uint8)
        device = self._cupy.asarray(host)

        def copy() -> None:
            ends = (device.data.ptr, host.ctypes.data)  # holding both arrays alive
            target, source = ends if to_device else ends[::-1]
            kind = runtime.memcpyHostToDevice if to_device else runtime.memcpyDeviceToHost
            runtime.memcpyAsync(target, source, n_bytes, kind, current_stream().ptr)

        return copy

    def library_product(self, number_format: str) -> tuple[Callable[[], object], int] | None:
        if importlib.util.find_spec("torch") is None:
            return None
        import torch

        if not torch.cuda.is_available():
            return None
        return torch_product(torch, number_format, PRODUCT_SIZE), 2 * PRODUCT_SIZE**3


def torch_product(torch: Any, number_format: str, size: int, device: str = "cuda") -> Callable[[], object]:
    """torch's product of two square matrices of -1, 0 and 1, checked: sums of so few are exact in every format.

    Raises UserError if it is wrong.
    """
    kinds = {"f16": torch.float16, "bf16": torch.bfloat16, "i8": torch.int8}
    kind = kinds.get(number_format, torch.float32)
    torch.manual_seed(0)
    a, b = (torch.randint(-1, 2, (size, size), device=device).to(kind) for _ in range(2))
    b = b.t().contiguous().t()  # column by column: what Tensor Cores want for int8

    def call() -> Any:
        if number_format == "i8":
            return torch._int_mm(a, b)
        torch.backends.cuda.matmul.allow_tf32 = number_format == "tf32"
        return a @ b

    wanted = a[:2].double() @ b.double()
    tolerance = 2.0**-7 if number_format == "bf16" else 0.0  # its 8 bits hold whole numbers up to 256
    if not torch.allclose(call()[:2].double(), wanted, rtol=tolerance, atol=0.0):
        raise UserError(f"torch's product in {number_format}: wrong result, not timed", EXIT_FAILED)
    return call
