"""Binds Triton launches to named arrays: on a GPU to copies on the device, else to the arrays themselves.

Without a GPU the kernels run in Triton's interpreter: for checking, never for timing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import triton

from flashperf.backends import available
from flashperf.dtypes import NUMPY_TYPES, aligned_empty, poison
from flashperf.errors import UserError

#: Short dtype name -> torch's type, where NumPy only has one of the same width.
TORCH_TYPES = {"bf16": torch.bfloat16, "e4m3": torch.float8_e4m3fn}

#: An array of the host and its copy on the device, or the tensor on its memory.
Copied = tuple[np.ndarray, torch.Tensor]
Tensors = Mapping[str, torch.Tensor]
#: Named tensors -> the launches of one call, in order. Called once, when the call is bound.
Table = Callable[[Tensors], "Sequence[Launch]"]


@dataclass(frozen=True)
class Launch:
    """One launch: a kernel (``triton.jit``, or an autotuner around one), its grid, arguments and meta-parameters.

    grid: at most three sizes, or a function of the meta-parameters. meta: constexprs, num_warps, num_stages.
    """

    kernel: Any
    grid: tuple[int, ...] | Callable[[Mapping[str, Any]], tuple[int, ...]]
    args: tuple[Any, ...]
    meta: Mapping[str, Any] = field(default_factory=dict)

    def run(self) -> None:
        """Enqueue it on torch's current stream; in the interpreter, do it."""
        self.kernel[self.grid](*self.args, **self.options)

    @property
    def options(self) -> dict[str, Any]:
        """The meta-parameters, and multiplications fused with additions: a default that changes with Triton 3.10."""
        return {**self.meta, "enable_fp_fusion": True}


class TritonCall:
    """A call without arguments that makes its launches in order."""

    def __init__(
        self, launches: Sequence[Launch], inputs: Iterable[Copied], outputs: Iterable[Copied]
    ) -> None:
        self.launches = tuple(launches)
        self._inputs, self._outputs = tuple(inputs), tuple(outputs)

    def __call__(self) -> None:
        for launch in self.launches:
            launch.run()

    def upload(self) -> None:
        """Copy the host's outputs to the device, as they are now; the interpreter works on them."""
        for host, tensor in self._outputs:
            if tensor.is_cuda:
                _bytes_of(tensor).copy_(torch.from_numpy(host.reshape(-1).view(np.uint8)))

    def collect(self) -> None:
        """Wait for the work and copy outputs back, and inputs: a kernel that wrote one is to be found out."""
        for host, tensor in (*self._inputs, *self._outputs):
            if tensor.is_cuda:
                host.reshape(-1).view(np.uint8)[...] = _bytes_of(tensor).cpu().numpy()

    @property
    def details(self) -> dict[str, Any]:
        """What an autotuner tried, by configuration, in seconds, and which one it took; empty without one."""
        found: dict[str, Any] = {}
        for launch in self.launches:
            found |= tuned(launch.kernel)
        return found


class GraphCall(TritonCall):
    """As TritonCall, with the launches captured in a CUDA graph when bound; the interpreter makes them one by one."""

    def __init__(
        self, launches: Sequence[Launch], inputs: Iterable[Copied], outputs: Iterable[Copied]
    ) -> None:
        super().__init__(launches, inputs, outputs)
        self._graph: Any = None
        if not available("triton"):
            super().__call__()  # kernels must be compiled before the capture
            torch.cuda.synchronize()
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):
                super().__call__()

    def __call__(self) -> None:
        if self._graph is None:
            super().__call__()
        else:
            self._graph.replay()


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1).view(torch.uint8)


def tuned(kernel: Any) -> dict[str, Any]:
    """The winner and the losers of an autotuner that has run: median seconds by configuration."""
    timings = getattr(kernel, "configs_timings", None)
    if not timings:
        return {}
    medians_s = {str(config): times_ms[0] * 1e-3 for config, times_ms in timings.items()}
    return {"autotuned": str(kernel.best_config), "tried_s": medians_s}


def ceil_div(a: int, b: int) -> int:
    """How many blocks of ``b`` cover ``a``."""
    return -(-a // b)


def block_of(n: int, least: int = 1) -> int:
    """The smallest power of two that holds ``n`` elements."""
    return max(least, triton.next_power_of_2(n))


def tensor(name: str, array: np.ndarray, dtype: str | None = None) -> torch.Tensor:
    """A tensor on a contiguous array's own memory, or on a copy of it on the GPU.

    ``dtype`` is a short name where NumPy's type doesn't say it (bf16 in uint16). Raises UserError for an array with
    gaps: kernels find an element by the shape alone.
    """
    if not array.flags.c_contiguous:
        raise UserError(f"{name} is not C-contiguous: shape {array.shape}, strides {array.strides}")
    shared = torch.from_numpy(array)
    if dtype in TORCH_TYPES:
        shared = shared.view(TORCH_TYPES[dtype])
    elif array.dtype == np.uint16:
        shared = shared.view(torch.bfloat16)
    return shared if available("triton") else shared.cuda()


def scratch(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Poisoned memory that only the kernels of a call use."""
    array = aligned_empty(shape, dtype)
    poison(array)
    return array


def bind(
    table: Table,
    inputs: Mapping[str, np.ndarray | torch.Tensor],
    outputs: Mapping[str, np.ndarray],
    temporary: Mapping[str, np.ndarray] | None = None,
    *,
    graph: bool = False,
) -> TritonCall:
    """Bind a table of launches to named arrays; ``temporary`` is memory that only the kernels use.

    uint16 arrays hold bf16. The call writes the outputs: at once in the interpreter, on ``collect()`` with a GPU.
    ``graph`` captures the launches in a CUDA graph there.
    """
    named = {**(temporary or {}), **inputs, **outputs}
    tensors = {name: a if isinstance(a, torch.Tensor) else tensor(name, a) for name, a in named.items()}
    kind = GraphCall if graph else TritonCall
    copied = (
        [(array, tensors[name]) for name, array in arrays.items() if isinstance(array, np.ndarray)]
        for arrays in (inputs, outputs)
    )
    return kind(table(tensors), *copied)


def to_format(array: np.ndarray, dtype: str) -> torch.Tensor:
    """f32 values converted to a short dtype name, f8 (``e4m3``) included, where the kernels run."""
    wanted = TORCH_TYPES.get(dtype) or getattr(torch, NUMPY_TYPES[dtype].name)
    return tensor("operand", array).to(wanted).contiguous()
