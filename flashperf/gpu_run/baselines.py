"""What our kernels are held against: torch's products and attention, and a copy on the device, by version and flags."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from flashperf.dtypes import from_bf16
from flashperf.problem import Problem

_COPY_BYTES = 1 << 30


@dataclass(frozen=True)
class Side:
    """A baseline on a problem's inputs. result: its output as float64, to be checked; work: FLOPs or bytes."""

    call: Callable[[], object]
    work: float
    result: Callable[[], np.ndarray] | None = None


@dataclass(frozen=True)
class Baseline:
    """A named baseline; per_byte: it is compared by bytes per second, not by FLOP/s."""

    name: str
    build: Callable[[Problem], Side]
    per_byte: bool = False

    def label(self) -> str:
        """The name with the version of torch."""
        try:
            return f"torch {importlib.metadata.version('torch')} {self.name}"
        except importlib.metadata.PackageNotFoundError:
            return self.name


def _on_device(array: np.ndarray, bf16: bool = False) -> Any:
    """A tensor on the GPU; uint16 arrays hold bf16."""
    import torch

    values = from_bf16(array) if array.dtype == np.uint16 else array
    tensor = torch.from_numpy(np.ascontiguousarray(values)).cuda()
    return tensor.to(torch.bfloat16) if bf16 or array.dtype == np.uint16 else tensor


def _float64(tensor: Any) -> np.ndarray:
    return tensor.double().cpu().numpy()


def _matmul(problem: Problem, bf16: bool, tf32: bool) -> Side:
    import torch

    torch.backends.cuda.matmul.allow_tf32 = tf32
    x, w = (_on_device(problem.inputs[name], bf16) for name in ("x", "w"))
    y = torch.empty(x.shape[0], w.shape[1], device=x.device, dtype=x.dtype)

    def call() -> None:
        torch.matmul(x, w, out=y)

    def result() -> np.ndarray:
        call()
        return _float64(y)

    return Side(call, float(problem.cost.flops), result)


def _sdpa(problem: Problem) -> Side:
    """Causal attention; q and y [rows,heads,e], keys and values [1,heads,keys,e], as many keys as rows."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q = _on_device(problem.inputs["q"]).transpose(0, 1)[None].contiguous()
    k, v = (_on_device(problem.inputs[name]) for name in ("k", "v"))

    def attend() -> Any:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    def result() -> np.ndarray:
        return _float64(attend()[0].transpose(0, 1))

    return Side(attend, float(problem.cost.flops), result)


def _copy(problem: Problem) -> Side:
    """The device's own copy of 1 GiB, which counts the bytes read and those written."""
    import torch

    source = torch.empty(_COPY_BYTES, dtype=torch.uint8, device="cuda").random_()
    target = torch.empty_like(source)
    return Side(lambda: target.copy_(source), 2.0 * _COPY_BYTES)


BASELINES: dict[str, Baseline] = {
    "matmul_bf16": Baseline("matmul bf16 (cuBLAS)", lambda p: _matmul(p, bf16=True, tf32=False)),
    "matmul_f32": Baseline(
        "matmul f32 (cuBLAS SGEMM, allow_tf32=False)", lambda p: _matmul(p, bf16=False, tf32=False)
    ),
    "matmul_tf32": Baseline(
        "matmul f32 (cuBLAS, allow_tf32=True)", lambda p: _matmul(p, bf16=False, tf32=True)
    ),
    "sdpa": Baseline("scaled_dot_product_attention (SDPBackend.FLASH_ATTENTION, causal)", _sdpa),
    "copy": Baseline("copy_ of 1 GiB on the device", _copy, per_byte=True),
}
