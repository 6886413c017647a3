"""Weights that are copied in for every use: the copy shows where there is little work per byte."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from flashperf.cases.definition import Built, Expectation, OpenCase, Point, Proof
from flashperf.cases.guards import cores_at_least, torch_installed

_LAYERS, _WIDTH = 4, 1024
_copier = ThreadPoolExecutor(1)


def _make(path: str, sizes: Mapping[str, int], seed: int) -> Built:
    import torch

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    generator = torch.Generator().manual_seed(seed)
    host = [torch.randn(_WIDTH, _WIDTH, generator=generator) / _WIDTH**0.5 for _ in range(_LAYERS)]
    if device.type == "cuda":
        host = [weight.pin_memory() for weight in host]
    resident = [weight.to(device, copy=True) for weight in host]
    staging = [torch.empty_like(resident[0]) for _ in range(2)]
    x = torch.randn(sizes["rows"], _WIDTH, generator=generator).to(device)

    def finish() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()

    def from_resident() -> Any:
        y = x
        for weight in resident:
            y = y @ weight
        finish()
        return y

    def streamed() -> Any:
        y = x
        for weight in host:
            staging[0].copy_(weight)
            y = y @ staging[0]
        finish()
        return y

    def overlapped_on_gpu() -> Any:
        """Copies on a stream of their own; a buffer is written again only when the product that read it is done."""
        y, read = x, [torch.cuda.Event() for _ in range(_LAYERS)]
        copying = torch.cuda.Stream()
        copying.wait_stream(torch.cuda.current_stream())
        for n, weight in enumerate(host):
            arrived = torch.cuda.Event()
            with torch.cuda.stream(copying):
                if n >= 2:
                    copying.wait_event(read[n - 2])
                staging[n % 2].copy_(weight, non_blocking=True)
                arrived.record()
            torch.cuda.current_stream().wait_event(arrived)
            y = y @ staging[n % 2]
            read[n].record()
        finish()
        return y

    def overlapped() -> Any:
        if device.type == "cuda":
            return overlapped_on_gpu()
        y = x
        pending = _copier.submit(staging[0].copy_, host[0])
        for n in range(_LAYERS):
            pending.result()
            if n + 1 < _LAYERS:
                pending = _copier.submit(staging[(n + 1) % 2].copy_, host[n + 1])
            y = y @ staging[n % 2]
        finish()
        return y

    def copies() -> None:
        for weight in host:
            staging[0].copy_(weight)
        finish()

    def reference() -> Any:
        y = x.double().cpu()
        for weight in host:
            y = y @ weight.double()
        return y

    calls = {"resident": from_resident, "streamed": streamed, "streamed_overlapped": overlapped}
    copied = 0 if path == "resident" else _LAYERS * _WIDTH * _WIDTH * 4
    return Built(
        call=calls[path],
        reference=reference,
        tolerance=1e-4,
        facts={"copied_bytes": copied, "flops": 2 * sizes["rows"] * _LAYERS * _WIDTH * _WIDTH},
        parts={"copy": copies} if copied else {},
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
