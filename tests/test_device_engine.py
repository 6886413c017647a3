"""The engine of a device without any kernel: twins, graphs, copies, memory; and what is asked of CuPy."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from flashperf.errors import UserError
from flashperf.pipeline.cuda_engine import DeviceEngine, DeviceSequence
from flashperf.pipeline.cupy_device import CupyDevice
from flashperf.pipeline.device import CaptureError, HostDevice, Run
from flashperf.pipeline.engines import engine_of


def bind_toy(kernel: str, arrays: Sequence[Any], scalars: Mapping[str, float]) -> Run:
    """``add``: the last array gets the first plus ``by``."""
    if kernel != "add":
        raise ValueError(f"no kernel {kernel}")

    def run() -> None:
        arrays[-1][...] = arrays[0] + scalars["by"]

    return run


@pytest.fixture
def engine() -> DeviceEngine:
    return DeviceEngine(HostDevice(), bind_toy, "toy")


def test_the_host_writes_a_twin_that_has_to_be_uploaded(engine: DeviceEngine) -> None:
    array = engine.empty((3,), "i32")
    twin = engine.host(array)
    assert twin is engine.host(array)
    twin[...] = 7
    assert not array.any()
    engine.upload(array)
    np.testing.assert_array_equal(engine.read(array), [7, 7, 7])


def test_constants_are_converted_and_their_shape_is_checked(engine: DeviceEngine) -> None:
    halves = engine.constant((2,), "bf16", lambda: np.array([1.0, -2.0], np.float32))
    np.testing.assert_array_equal(halves, [0x3F80, 0xC000])
    with pytest.raises(RuntimeError, match=r"has shape \(3,\), was declared \(2,\)"):
        engine.constant((2,), "f32", lambda: np.zeros(3, np.float32))


def test_calls_are_one_graph_and_count_every_replay(engine: DeviceEngine) -> None:
    x, y, z = (engine.empty((2,), "f32") for _ in range(3))
    calls = [engine.prepare("add", x, y, by=1.0), engine.prepare("add", y, z, by=2.0)]
    assert calls[0].key == "add(2,2)"
    replay = engine.sequence(calls)
    for _ in range(3):
        x[...] += 1
        replay()
        np.testing.assert_array_equal(z, x + 3)
    assert replay.graphs == 1
    assert len(replay) == 2
    assert [call.run.count for call in calls] == [3, 3]
    assert replay.timed().shape == (2,)
    assert calls[0].run.count == 4
    calls[0].run.count += 1
    assert calls[0].run.count == 5


def test_what_the_host_must_do_stands_between_graphs(engine: DeviceEngine) -> None:
    x, y = (engine.empty((2,), "f32") for _ in range(2))
    weights, staged = engine.constant((2,), "f32", lambda: np.ones(2, np.float32)), engine.empty((2,), "f32")
    add, stage = engine.prepare("add", x, y, by=1.0), engine.prepare("stage_f32", weights, staged)
    replay = engine.sequence([add, add, stage, add, engine.prepare("fresh_pages", engine.region(4096)), add])
    for _ in range(2):
        replay()
    assert replay.graphs == 3
    np.testing.assert_array_equal(staged, [1, 1])
    assert (add.run.count, stage.run.count) == (8, 2)


def test_a_graph_refuses_what_no_graph_can_hold(engine: DeviceEngine) -> None:
    device = engine.device
    target, pageable = engine.empty((2,), "f32"), np.ones(2, np.float32)
    for forbidden in (
        lambda: device.copy_in(target, pageable),
        lambda: device.allocate(64, "fresh"),
        lambda: device.copy_out(target),
        device.wait,
    ):
        with pytest.raises(CaptureError, match="a graph can't hold"):
            device.record(forbidden)()
    pinned = device.pinned((2,), "f32")
    pinned[...] = 5
    device.record(lambda: device.copy_in(target, pinned))()
    np.testing.assert_array_equal(target, [5, 5])


def test_weights_are_copied_beside_the_calls_from_pinned_memory(engine: DeviceEngine) -> None:
    weights, staged = (
        engine.constant((2,), "f32", lambda: np.full(2, 3, np.float32)),
        engine.empty((2,), "f32"),
    )
    stage = engine.prepare("stage_f32", weights, staged)
    beside = engine.background()
    beside.submit(engine.sequence([stage]))
    beside.wait()
    np.testing.assert_array_equal(staged, [3, 3])
    assert stage.run.count == 1
    assert beside.span_ns() == (0, 0)
    beside.submit(engine.sequence([stage]))
    with pytest.raises(RuntimeError, match="that nothing waits for: join"):
        engine.wait()
    beside.wait()
    pinned = engine.device.pinned((2,), "f32")
    with pytest.raises(RuntimeError, match="fork first"):
        engine.device.copy_beside(staged, pinned)
    with pytest.raises(ValueError, match="only pinned memory"):
        engine.device.copy_beside(staged, np.zeros(2, np.float32))
    with pytest.raises(TypeError, match="only copies of weights"):
        beside.submit(engine.sequence([engine.prepare("fresh_pages", engine.region(64))]))


def test_what_is_forgotten_is_made_anew(engine: DeviceEngine) -> None:
    array = engine.empty((3,), "i32")
    twin = engine.host(array)
    engine.forget()
    assert engine.host(array) is not twin


def test_a_pool_keeps_what_is_freed_and_the_driver_does_not() -> None:
    device = HostDevice()
    for how, asked in (("fresh", 3), ("pool", 1)):
        device.allocations = 0
        for _ in range(3):
            memory = device.allocate(256 if how == "fresh" else 512, how)
            assert (memory == 0xFF).all() or how == "pool"
            device.free(memory)
        assert device.allocations == asked


def test_unknown_kernels_and_backends_are_errors_of_one_line(engine: DeviceEngine) -> None:
    with pytest.raises(UserError, match="toy: mul can't be bound: no kernel mul"):
        engine.prepare("mul", engine.empty((1,), "f32"))
    with pytest.raises(UserError, match="unknown backend of the pipeline 'cuad': did you mean cuda"):
        engine_of("cuad")


def test_calls_back_to_back_are_a_graph_that_is_waited_for(engine: DeviceEngine) -> None:
    x, y = (engine.empty((2,), "f32") for _ in range(2))
    add = engine.prepare("add", x, y, by=1.0)
    engine.back_to_back([add.run] * 4)()
    assert add.run.count == 4
    seen: list[int] = []
    engine.back_to_back([add.run, lambda: seen.append(1)])()
    assert (add.run.count, seen) == (5, [1])
    assert engine.time_cold(add.run) > 0
    assert isinstance(engine.sequence([add]), DeviceSequence)


# ---- what is asked of CuPy ----


class FakeStream:
    def __init__(self, log: list[str], name: str) -> None:
        self.log, self.name, self.ptr = log, name, 1

    def use(self) -> None:
        self.log.append(f"use {self.name}")

    def synchronize(self) -> None:
        self.log.append("synchronize")

    def begin_capture(self) -> None:
        self.log.append("begin")

    def end_capture(self) -> SimpleNamespace:
        self.log.append("end")
        launch = lambda stream: self.log.append("launch")  # noqa: E731
        return SimpleNamespace(upload=lambda stream: self.log.append("upload"), launch=launch)

    def record(self) -> str:
        return f"event of {self.name}"

    def wait_event(self, event: str) -> None:
        self.log.append(f"{self.name} waits for {event}")


@pytest.fixture
def cupy_log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    log: list[str] = []
    names = iter(("first", "second"))
    copied = lambda to, source, size, kind, stream: log.append(f"copy {size}")  # noqa: E731
    fake = SimpleNamespace(
        cuda=SimpleNamespace(
            Device=lambda: SimpleNamespace(id=0),
            Stream=lambda non_blocking: FakeStream(log, next(names)),
            runtime=SimpleNamespace(
                getDeviceProperties=lambda number: {"name": b"Fake", "l2CacheSize": 1 << 20},
                memcpyAsync=copied,
                memGetInfo=lambda: (60, 100),
                CUDARuntimeError=RuntimeError,
            ),
        ),
        get_default_memory_pool=lambda: SimpleNamespace(total_bytes=lambda: 30),
    )
    monkeypatch.setitem(sys.modules, "cupy", fake)
    return log


def test_a_capture_follows_all_earlier_work_and_is_uploaded_before_it_is_launched(
    cupy_log: list[str],
) -> None:
    device = CupyDevice()
    assert device.name == "Fake"
    graph = device.record(lambda: cupy_log.append("enqueue"))
    graph()
    assert cupy_log == ["use first", "synchronize", "begin", "enqueue", "end", "upload", "launch"]


def test_a_capture_that_fails_is_ended_and_explained(cupy_log: list[str]) -> None:
    def forbidden() -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    with pytest.raises(CaptureError, match="a graph can't hold this: operation not permitted"):
        CupyDevice().record(forbidden)
    assert cupy_log[-1] == "end"


def test_the_second_stream_waits_for_the_first_and_back(cupy_log: list[str]) -> None:
    device = CupyDevice()
    device.fork()
    device.join()
    assert cupy_log[1:] == ["second waits for event of first", "first waits for event of second"]


def test_copies_need_as_many_bytes_on_both_sides(cupy_log: list[str]) -> None:
    device = CupyDevice()
    target = SimpleNamespace(nbytes=8, data=SimpleNamespace(ptr=2))
    device.copy_in(target, np.zeros(2, np.float32))
    assert cupy_log[-1] == "copy 8"
    with pytest.raises(ValueError, match="needs a contiguous source of 8 bytes"):
        device.copy_in(target, np.zeros(3, np.float32))
    assert device.used_bytes() == 40
