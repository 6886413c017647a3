"""Weights that are copied in for every use: the copy shows where there is little work per byte."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from flashperf.cases.definition import Built, Expectation, OpenCase, Point, Proof
from flashperf.cases.guards import cores_at_least, torch_installed

_LAYERS, _WIDTH = 4, 1024
_copier = ThreadPoolExecutor(1)


class _Stack:
    """Products with a few matrices that lie on the host, on the device, or pass through two buffers there."""

    def __init__(self, rows: int, seed: int) -> None:
        import torch

        self.on_gpu = torch.cuda.is_available()
        device = torch.device("cuda" if self.on_gpu else "cpu")
        generator = torch.Generator().manual_seed(seed)
        host = [torch.randn(_WIDTH, _WIDTH, generator=generator) / _WIDTH**0.5 for _ in range(_LAYERS)]
        self.host = [weight.pin_memory() for weight in host] if self.on_gpu else host
        self.on_device = [weight.to(device, copy=True) for weight in host]
        self.staging = [torch.empty_like(self.on_device[0]) for _ in range(2)]
        self.x = torch.randn(rows, _WIDTH, generator=generator).to(device)

    def finish(self) -> None:
        """Wait for the device: without this, only what it was asked for would be timed."""
        import torch

        if self.on_gpu:
            torch.cuda.synchronize()

    def resident(self) -> Any:
        """Weights on the device."""
        y = self.x
        for weight in self.on_device:
            y = y @ weight
        self.finish()
        return y

    def streamed(self) -> Any:
        """Each weight copied, then used."""
        y = self.x
        for weight in self.host:
            self.staging[0].copy_(weight)
            y = y @ self.staging[0]
        self.finish()
        return y

    def streamed_overlapped(self) -> Any:
        """The next weight is copied while this one is used."""
        return self._by_streams() if self.on_gpu else self._by_a_thread()

    def _by_a_thread(self) -> Any:
        y = self.x
        pending = _copier.submit(self.staging[0].copy_, self.host[0])
        for n in range(_LAYERS):
            pending.result()
            if n + 1 < _LAYERS:
                pending = _copier.submit(self.staging[(n + 1) % 2].copy_, self.host[n + 1])
            y = y @ self.staging[n % 2]
        return y

    def _by_streams(self) -> Any:
        """A buffer is written again only when the product that read it is done."""
        import torch

        y, read = self.x, [torch.cuda.Event() for _ in range(_LAYERS)]
        copying = torch.cuda.Stream()
        copying.wait_stream(torch.cuda.current_stream())
        for n, weight in enumerate(self.host):
            arrived = torch.cuda.Event()
            with torch.cuda.stream(copying):
                if n >= 2:
                    copying.wait_event(read[n - 2])
                self.staging[n % 2].copy_(weight, non_blocking=True)
                arrived.record()
            torch.cuda.current_stream().wait_event(arrived)
            y = y @ self.staging[n % 2]
            read[n].record()
        self.finish()
        return y

    def copies(self) -> None:
        """The copies alone."""
        for weight in self.host:
            self.staging[0].copy_(weight)
        self.finish()

    def reference(self) -> Any:
        """In float64 on the host."""
        y = self.x.double().cpu()
        for weight in self.host:
            y = y @ weight.double()
        return y


def _make(path: str, sizes: Mapping[str, int], seed: int) -> Built:
    stack = _Stack(sizes["rows"], seed)
    copied = 0 if path == "resident" else _LAYERS * _WIDTH * _WIDTH * 4
    return Built(
        call=getattr(stack, path),
        reference=stack.reference,
        tolerance=1e-4,
        facts={"copied_bytes": copied, "flops": 2 * sizes["rows"] * _LAYERS * _WIDTH * _WIDTH},
        parts={"copy": stack.copies} if copied else {},
        proof=Proof(ops=("aten::mm",) if path != "streamed" else ("aten::mm", "aten::copy_")),
    )


CASE = OpenCase(
    id="A10",
    name="streamed-weights",
    title="Weights copied in for every step",
    source="deepspeedai/DeepSpeed#6695, #2998",
    reported="Offloading made a step of 0.04 s one of 0.26 s: too little work per byte to hide the copy behind, and "
    "timers that did not wait for the device.",
    axis="rows",
    baseline="resident",
    optimised="streamed",
    others=("streamed_overlapped",),
    make=_make,
    points=tuple(Point({"rows": rows}, rows) for rows in (1, 16, 128)),
    requires=(torch_installed, cores_at_least(2)),
    stand_in="without a GPU, copies in memory by a thread stand in for the bus",
    expectation=Expectation("slower", "transfer"),
)
