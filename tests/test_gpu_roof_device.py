"""What measuring the roofs asks of CuPy and torch: a stand-in records it, torch's products run on the CPU."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from flashperf.cuda import roof_device
from flashperf.cuda.roof_device import CupyRoofDevice, torch_product
from flashperf.errors import UserError


class OnDevice:
    """An array of CuPy's as far as copies look at it."""

    def __init__(self, host: np.ndarray) -> None:
        self.host, self.data = host.copy(), SimpleNamespace(ptr=111)

    def get(self) -> np.ndarray:
        return self.host


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Copies as (target, source, bytes, direction, stream)."""
    calls: list[Any] = []
    runtime = SimpleNamespace(
        memcpyHostToDevice="in",
        memcpyDeviceToHost="out",
        memcpyAsync=lambda *copy: calls.append(copy),
        deviceSynchronize=lambda: calls.append("wait"),
    )
    fake = SimpleNamespace(
        asarray=OnDevice,
        resize=lambda array, n: OnDevice(np.resize(array.host, n)),
        cuda=SimpleNamespace(runtime=runtime),
    )

    def pinned(shape: tuple[int, ...], kind: type) -> np.ndarray:
        calls.append("pinned")
        return np.zeros(shape, kind)

    monkeypatch.setitem(sys.modules, "cupyx", SimpleNamespace(zeros_pinned=pinned))
    monkeypatch.setattr(roof_device, "current_stream", lambda: SimpleNamespace(ptr=3))
    monkeypatch.setattr(CupyRoofDevice, "__init__", lambda self: setattr(self, "_cupy", fake))
    return calls


@pytest.mark.parametrize("to_device, kind", [(True, "in"), (False, "out")])
@pytest.mark.parametrize("pinned", [True, False])
def test_a_copy_goes_the_way_it_is_asked_to(log: list[Any], to_device: bool, kind: str, pinned: bool) -> None:
    CupyRoofDevice().link(4096, to_device, pinned)()
    assert ("pinned" in log) == pinned
    target, source, n_bytes, direction, stream = log[-1]
    assert (n_bytes, direction, stream) == (4096, kind, 3)
    assert (target == 111) == to_device
    assert (source == 111) != to_device


def test_arrays_go_there_and_back_after_the_work(log: list[Any]) -> None:
    device, host = CupyRoofDevice(), np.arange(6, dtype=np.float32)
    np.testing.assert_array_equal(device.download(device.upload(host)), host)
    assert log == ["wait"]
    np.testing.assert_array_equal(device.download(device.repeated(host[:4], 10)), np.resize(host[:4], 10))


def test_without_torch_there_is_no_library_product(log: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roof_device.importlib.util, "find_spec", lambda name: None)
    assert CupyRoofDevice().library_product("f16") is None


@pytest.mark.parametrize("number_format", ["f32", "tf32", "f16", "bf16", "i8"])
def test_torchs_products_are_checked_before_they_are_timed(
    number_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    torch_product(torch, number_format, 64, "cpu")()
    monkeypatch.setattr(torch, "allclose", lambda *a, **k: False)
    with pytest.raises(UserError, match=f"torch's product in {number_format}: wrong result, not timed"):
        torch_product(torch, number_format, 64, "cpu")
