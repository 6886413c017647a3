"""Clocks that time what a GPU does: events on a stream that is held until everything is enqueued.

A call that waits for the device, or fills its queue, can't be enqueued behind a held stream: the device gives up
after HOLD_LIMIT_S, and the clock falls back to events alone and says so in its name, which goes into the record.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from flashperf.backends import available
from flashperf.disturbance import Disturbance, Probe, SystemProbe
from flashperf.errors import UserError
from flashperf.gpu.verdicts import THROTTLED_BELOW, Times, drop_throttled, median
from flashperf.timers import SYSTEM_CLOCK, Clock, Sample, SystemClock

HOLD_LIMIT_S = 0.25
#: Calls behind one hold at first: a device's queue takes about a thousand launches, and a call may make several.
MOST_HELD_CALLS = 256
HELD = "CUDA events, stream held until all was enqueued"
EVENTS = "CUDA events, launch latency inside: the call waits for the device or fills its queue"
GPU_BACKENDS = ("cuda", "triton")

Call = Callable[[], object]


class CantRecordError(RuntimeError):
    """A call that no graph can hold; the message says why."""


class EventDevice(Protocol):
    """What these clocks ask of a device."""

    def hold(self, limit_s: float) -> None:
        """Make the stream wait for ``release``, at most so long."""

    def release(self) -> None:
        """Let the stream go on."""

    def gave_up(self) -> bool:
        """After ``wait``: whether the last hold ended by itself."""

    def event(self) -> Any:
        """Enqueue an event on the stream that calls use."""

    def between_s(self, first: Any, last: Any) -> float:
        """Seconds between two events, after ``wait``."""

    def wait(self) -> None:
        """Return when the whole device is done, whatever the stream."""

    def flush(self) -> None:
        """Enqueue a write over twice the L2."""

    def record(self, call: Call, times: int) -> Call:
        """A graph of so many calls. Raises CantRecordError."""

    def sm_clock_mhz(self) -> float | None:
        """The clock of the SMs now; None if the driver doesn't say."""


class DeviceClock:
    """A Clock whose samples are the device's time; between samples it is the host's."""

    wall_ns = staticmethod(SystemClock.wall_ns)
    cpu_ns = staticmethod(SystemClock.cpu_ns)

    def __init__(self, device: EventDevice) -> None:
        self.device = device
        self.name = HELD
        self._together = MOST_HELD_CALLS
        self._refused = 0

    def first_call_s(self, call: Call) -> float:
        """Wall seconds of a call that was never made, to the end of its work: modules are loaded, memory is found."""
        self.device.wait()
        begin_ns = self.wall_ns()
        call()
        self.device.wait()
        return (self.wall_ns() - begin_ns) * 1e-9

    def time_calls(self, call: Call, calls: int) -> Sample:
        """Seconds per call on the device, and of CPU time.

        Where a hold ends by itself, fewer calls go behind the next; where even one is too many twice (what loads a
        module waits for the device, once), events without a hold are used from then on.
        """
        while self.name == HELD:
            parts = [min(self._together, calls - done) for done in range(0, calls, self._together)]
            timed = [self._timed(call, part, held=True) for part in parts]
            if not any(gave_up for _, gave_up in timed):
                samples = [sample for sample, _ in timed]
                return Sample(
                    sum(s.wall_s * n for s, n in zip(samples, parts, strict=True)) / calls,
                    sum(s.cpu_s * n for s, n in zip(samples, parts, strict=True)) / calls,
                )
            if max(parts) == 1:
                self._refused += 1
                self.name = EVENTS if self._refused > 1 else HELD
            self._together = max(1, max(parts) // 4)
        return self._timed(call, calls, held=False)[0]

    def _timed(self, call: Call, calls: int, held: bool) -> tuple[Sample, bool]:
        device = self.device
        device.wait()
        cpu_ns = self.cpu_ns()
        if held:
            device.hold(HOLD_LIMIT_S)
        try:
            first = device.event()
            for _ in range(calls):
                call()
            last = device.event()
        finally:
            if held:
                device.release()
        device.wait()
        cpu_s = (self.cpu_ns() - cpu_ns) * 1e-9
        return Sample(device.between_s(first, last) / calls, cpu_s / calls), held and device.gave_up()


class DeviceSweep:
    """Empties the device's L2 before a sample; ``state`` is what the record says."""

    state = "cold"

    def __init__(self, device: EventDevice) -> None:
        self._device = device

    def __call__(self) -> None:
        self._device.flush()


class ThrottleProbe:
    """Evidence that a sample ran at a reduced SM clock, as a disturbance: the pair is run again, up to a cap."""

    def __init__(self, device: EventDevice) -> None:
        self._device, self._fastest_mhz, self._throttled = device, 0.0, 0

    def read(self) -> Disturbance:
        """``throttled`` has grown by one if the clock is below its best so far."""
        clock_mhz = self._device.sm_clock_mhz()
        if clock_mhz:
            self._fastest_mhz = max(self._fastest_mhz, clock_mhz)
            self._throttled += clock_mhz < THROTTLED_BELOW * self._fastest_mhz
        return Disturbance(throttled=self._throttled)


def all_clocks(
    call: Call, device: EventDevice, samples: int = 15, calls: int = 10, graph_calls: int = 20
) -> Times:
    """One call by every clock: held events, host wall, a graph, and after a flush. Medians; throttled ones dropped."""
    clock = DeviceClock(device)
    call()
    device.wait()
    taken, speeds = [], []
    for _ in range(samples):
        taken.append(clock.time_calls(call, calls).wall_s)
        speeds.append(device.sm_clock_mhz())
    kept = drop_throttled(taken, speeds)
    host_s, enqueue_s = _host_times(call, device, calls, samples)
    graph_s, no_graph = _graph_time(call, clock, graph_calls, samples)
    cold_s, flush_s = _cold_times(call, device, samples)
    return Times(
        event_s=median(kept.samples_s),
        host_s=host_s,
        enqueue_s=enqueue_s,
        graph_s=graph_s,
        no_graph=no_graph,
        cold_s=cold_s,
        flush_s=flush_s,
        timer=clock.name,
        kept=kept,
    )


def _host_times(call: Call, device: EventDevice, calls: int, samples: int) -> tuple[float, float]:
    """Wall seconds per call until all work was done, and until the last call had returned."""
    whole, returned = [], []
    for _ in range(samples):
        device.wait()
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        returned.append((time.perf_counter() - begin) / calls)
        device.wait()
        whole.append((time.perf_counter() - begin) / calls)
    return median(whole), median(returned)


def _graph_time(call: Call, clock: DeviceClock, calls: int, samples: int) -> tuple[float | None, str]:
    try:
        graph = clock.device.record(call, calls)
    except CantRecordError as error:
        return None, str(error)
    graph()
    return median([clock.time_calls(graph, 1).wall_s / calls for _ in range(samples)]), ""


def _cold_times(call: Call, device: EventDevice, samples: int) -> tuple[float, float]:
    """Seconds of a call after a flush, and of the flush."""
    cold, flushes = [], []
    for _ in range(samples):
        device.wait()
        events = [device.event()]
        device.flush()
        events.append(device.event())
        call()
        events.append(device.event())
        device.wait()
        flushes.append(device.between_s(events[0], events[1]))
        cold.append(device.between_s(events[1], events[2]))
    return median(cold), median(flushes)


def clock_for(backend: str) -> Clock:
    """The clock for a backend's cases: a DeviceClock for what runs on a GPU here, the system's for all else.

    Raises UserError where kernels run on a GPU but CuPy, whose events time them, is missing: the host's clock would
    only see how long enqueueing takes.
    """
    if backend not in GPU_BACKENDS or available(backend):
        return SYSTEM_CLOCK
    if reason := available("cuda"):
        raise UserError(f"{backend} kernels are timed by CuPy's events: {reason}")
    from flashperf.gpu.cupy_events import CupyEvents

    return DeviceClock(CupyEvents())


def probe_for(clock: Clock) -> Probe:
    """What disturbs a sample: the SM clock on a GPU, steals and throttling of the CPU elsewhere."""
    return ThrottleProbe(clock.device) if isinstance(clock, DeviceClock) else SystemProbe()
