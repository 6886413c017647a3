"""The GPU's clocks on a scripted device: what is held, when a clock falls back, and what a probe sees."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from flashperf import measure
from flashperf.backends import available
from flashperf.blocks import CacheSweep
from flashperf.disturbance import SystemProbe
from flashperf.gpu.clock import (
    EVENTS,
    HELD,
    CantRecordError,
    DeviceClock,
    DeviceSweep,
    ThrottleProbe,
    all_clocks,
    clock_for,
    probe_for,
)
from flashperf.timers import SYSTEM_CLOCK, calibrate, time_calls


class FakeDevice:
    """A device whose queue takes ``queue`` calls behind a hold, each ``call_s`` long."""

    def __init__(self, call_s: float = 10e-6, queue: int = 1000) -> None:
        self.call_s, self.queue = call_s, queue
        self.now_s, self.waiting, self.held, self.overflowed = 0.0, 0, False, False
        self.log: list[str] = []
        self.clocks: list[float | None] = []
        self.in_capture = False

    def call(self) -> None:
        if self.in_capture:
            return
        if self.held:
            self.waiting += 1
            self.overflowed |= self.waiting > self.queue
        self.now_s += self.call_s

    def hold(self, limit_s: float) -> None:
        self.log.append("hold")
        self.held, self.overflowed, self.waiting = True, False, 0

    def release(self) -> None:
        self.log.append("release")
        self.held = False

    def gave_up(self) -> bool:
        return self.overflowed

    def event(self) -> float:
        return self.now_s

    def between_s(self, first: float, last: float) -> float:
        return last - first

    def wait(self) -> None:
        assert not self.held, "waiting for a device that waits for the host"

    def flush(self) -> None:
        self.log.append("flush")
        self.now_s += 40e-6

    def record(self, call: Callable[[], object], times: int) -> Callable[[], object]:
        self.in_capture = True
        call()
        self.in_capture = False

        def replay() -> None:
            self.now_s += times * self.call_s

        return replay

    def sm_clock_mhz(self) -> float | None:
        return self.clocks.pop(0) if self.clocks else 1980.0


def test_calls_are_held_and_their_time_is_the_devices() -> None:
    device = FakeDevice()
    clock = DeviceClock(device)
    sample = time_calls(device.call, 100, clock)
    assert sample.wall_s == pytest.approx(10e-6)
    assert device.log == ["hold", "release"]
    assert clock.name == HELD


def test_fewer_calls_are_held_where_the_queue_is_short() -> None:
    device = FakeDevice(queue=100)
    clock = DeviceClock(device)
    assert time_calls(device.call, 300, clock).wall_s == pytest.approx(10e-6)
    assert clock.name == HELD
    device.log.clear()
    time_calls(device.call, 130, clock)
    assert device.log.count("hold") == 3  # 64 calls at a time: what was learnt stays


def test_a_call_that_fills_the_queue_alone_is_timed_without_a_hold() -> None:
    device = FakeDevice(queue=0)
    clock = DeviceClock(device)
    assert time_calls(device.call, 8, clock).wall_s == pytest.approx(10e-6)
    assert clock.name == EVENTS
    device.log.clear()
    time_calls(device.call, 8, clock)
    assert device.log == []


def test_a_first_call_that_waits_for_the_device_costs_no_hold() -> None:
    device = FakeDevice(queue=0)
    clock = DeviceClock(device)

    def loads_a_module_once() -> None:
        device.call()
        device.queue = 1000

    assert time_calls(loads_a_module_once, 1, clock).wall_s == pytest.approx(10e-6)
    assert clock.name == HELD
    assert device.log.count("hold") == 2


def test_the_first_call_is_timed_by_the_wall() -> None:
    device = FakeDevice()
    assert 0 < DeviceClock(device).first_call_s(device.call) < 1
    assert device.log == []


def test_the_stream_is_let_go_when_a_call_fails() -> None:
    device = FakeDevice()

    def broken() -> None:
        raise RuntimeError("no such kernel")

    with pytest.raises(RuntimeError, match="no such kernel"):
        time_calls(broken, 1, DeviceClock(device))
    assert not device.held


def test_calibration_works_on_the_devices_time() -> None:
    device = FakeDevice(call_s=2e-6)
    calls, one_s = calibrate(device.call, DeviceClock(device), least_s=1e-3)
    assert calls in (500, 501)
    assert one_s == pytest.approx(2e-6)


def test_a_reduced_clock_is_a_disturbance_and_a_steady_one_is_not() -> None:
    device = FakeDevice()
    device.clocks = [1980, 1970, 1500, None, 1980]
    probe = ThrottleProbe(device)
    seen = [probe.read() for _ in range(5)]
    grown = [bool(after - before) for before, after in itertools.pairwise(seen)]
    assert grown == [False, True, False, False]


def test_all_clocks_in_one_row() -> None:
    device = FakeDevice(call_s=20e-6)
    device.clocks = [1980.0] * 4 + [1000.0] + [1980.0] * 20
    times = all_clocks(device.call, device, samples=10)
    assert times.event_s == pytest.approx(20e-6)
    assert times.graph_s == pytest.approx(20e-6)
    assert times.cold_s == pytest.approx(20e-6)
    assert times.flush_s == pytest.approx(40e-6)
    assert times.kept.dropped == 1
    assert times.timer == HELD


def test_a_call_that_no_graph_can_hold_says_why() -> None:
    class Unrecordable(FakeDevice):
        def record(self, call: Callable[[], object], times: int) -> Callable[[], object]:
            raise CantRecordError("operation not permitted when stream is capturing")

    device = Unrecordable()
    times = all_clocks(device.call, device, samples=3)
    assert times.graph_s is None
    assert "not permitted" in times.no_graph


def test_the_backend_decides_the_clock() -> None:
    assert clock_for("cpu") is SYSTEM_CLOCK
    if available("cuda"):
        assert clock_for("cuda") is SYSTEM_CLOCK, "the emulator has no time of its own"
    assert isinstance(probe_for(SYSTEM_CLOCK), SystemProbe)
    assert isinstance(probe_for(DeviceClock(FakeDevice())), ThrottleProbe)


def test_cold_samples_flush_the_device_that_is_timed() -> None:
    device = FakeDevice()
    sweep: Any = measure._sweep(DeviceClock(device))
    assert isinstance(sweep, DeviceSweep)
    sweep()
    assert device.log == ["flush"]
    assert isinstance(measure._sweep(SYSTEM_CLOCK), CacheSweep)


def test_a_pair_is_measured_on_the_given_device_clock() -> None:
    from flashperf import registry

    mechanism = registry.mechanism("launch")
    case = next(c for c in registry.cases(mechanism, "test", backends=["cpu"]))
    device = FakeDevice()

    class Counting(DeviceClock):
        def time_calls(self, call: Callable[[], object], calls: int) -> Any:
            def both() -> None:
                call()
                device.call()

            return super().time_calls(both, calls)

    a, b, log_ratios = measure.measure_pair(
        mechanism, case, case, 0.01, np.random.default_rng(0), clock=Counting(device)
    )
    assert a.timer == HELD
    assert a.samples_s[0] == pytest.approx(10e-6)
    assert log_ratios[0] == pytest.approx(0.0, abs=1e-6)
    assert b.cache_state == "warm"
