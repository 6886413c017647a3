"""What the GPU's clock asks of CuPy, torch and NVML: a stand-in records it."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from flashperf.gpu.clock import CantRecordError
from flashperf.gpu.cupy_events import CupyEvents, current_stream


class FakeStream:
    def __init__(self, log: list[str], ptr: int, refuses: str = "") -> None:
        self.log, self.ptr, self.refuses = log, ptr, refuses

    def __enter__(self) -> FakeStream:
        return self

    def __exit__(self, *_: object) -> None: ...

    def begin_capture(self) -> None:
        self.log.append("begin")

    def end_capture(self) -> SimpleNamespace:
        self.log.append("end")
        if self.refuses:
            raise RuntimeError(self.refuses)
        return SimpleNamespace(launch=lambda stream: self.log.append(f"graph on {stream.ptr}"))


class FakeEvent:
    def record(self, stream: FakeStream) -> None:
        self.stream = stream.ptr


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The log of a stand-in for CuPy; torch and NVML are hidden."""
    calls: list[str] = []

    def launch(grid: tuple, block: tuple, args: tuple) -> None:
        released, gave_up, limit_ns = args
        calls.append(
            f"hold {grid} {block} for {int(limit_ns)} ns, flags {int(gave_up - released)} bytes apart"
        )

    fake = SimpleNamespace(
        empty=lambda size, kind: SimpleNamespace(nbytes=size, data=SimpleNamespace(ptr=77)),
        RawModule=lambda **_: SimpleNamespace(get_function=lambda name: launch),
        cuda=SimpleNamespace(
            Device=lambda: SimpleNamespace(id=0, pci_bus_id="0000:01:00.0"),
            Event=FakeEvent,
            Stream=lambda non_blocking: FakeStream(calls, 5),
            ExternalStream=lambda ptr: FakeStream(calls, ptr),
            get_current_stream=lambda: FakeStream(calls, 3),
            get_elapsed_time=lambda a, b: 2.5,
            runtime=SimpleNamespace(
                getDeviceProperties=lambda number: {"l2CacheSize": 1000},
                deviceSynchronize=lambda: calls.append("wait"),
                memsetAsync=lambda ptr, value, size, stream: calls.append(f"set {size} on {stream}"),
                CUDARuntimeError=RuntimeError,
            ),
        ),
    )
    monkeypatch.setitem(sys.modules, "cupy", fake)
    monkeypatch.setitem(sys.modules, "cupyx", SimpleNamespace(zeros_pinned=np.zeros))
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr("flashperf.gpu.cupy_events._nvml_handle", lambda bus: None)
    return calls


def test_the_hold_reads_one_flag_and_writes_the_other(log: list[str]) -> None:
    device = CupyEvents()
    device.release()
    device.hold(0.25)
    assert log == ["hold (1,) (1,) for 250000000 ns, flags 4 bytes apart"]
    assert not device._flags.any()  # a new hold begins held
    device.release()
    assert device._flags.tolist() == [1, 0]
    assert not device.gave_up()
    device._flags[1] = 1
    assert device.gave_up()


def test_events_are_seconds_on_the_current_stream(log: list[str]) -> None:
    device = CupyEvents()
    assert device.event().stream == 3
    assert device.between_s(device.event(), device.event()) == 2.5e-3
    device.flush()
    assert log == ["set 2000 on 3"]
    assert device.sm_clock_mhz() is None


def test_where_torch_is_in_use_its_stream_counts(log: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    stream = SimpleNamespace(cuda_stream=9)
    cuda = SimpleNamespace(is_available=lambda: True, current_stream=lambda: stream)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    assert current_stream().ptr == 9
    assert CupyEvents().event().stream == 9


def test_a_graph_is_recorded_after_a_first_call_and_launched_on_the_current_stream(log: list[str]) -> None:
    graph = CupyEvents().record(lambda: log.append("call"), 2)
    graph()
    assert log == ["call", "wait", "begin", "call", "call", "end", "graph on 3"]


def test_what_no_graph_can_hold_is_said(log: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    device = CupyEvents()
    calls = iter((None, RuntimeError("operation not permitted\ndetails")))

    def refused(*_: Any) -> None:
        error = next(calls)
        if error is not None:
            raise error

    with pytest.raises(CantRecordError, match=r"RuntimeError: operation not permitted$"):
        device.record(refused, 1)
    assert log[-1] == "end"
    monkeypatch.setattr(device._cupy.cuda, "Stream", lambda non_blocking: FakeStream(log, 5, "invalidated"))
    with pytest.raises(CantRecordError, match="invalidated"):
        device.record(lambda: None, 1)
