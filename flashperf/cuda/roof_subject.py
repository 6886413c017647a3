"""What a worker process does to measure the roofs of a GPU: every kernel is checked, then the best sample counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import numpy as np

from flashperf.cuda import launcher, roofs
from flashperf.emulator import Launch
from flashperf.errors import EXIT_FAILED, UserError
from flashperf.gpu.clock import CantRecordError, DeviceClock, EventDevice
from flashperf.gpu.verdicts import drop_throttled
from flashperf.roofs.gpu_plan import SHARED_ARRAY_BYTES, GpuPlan, Walk
from flashperf.store import from_json

SAMPLES = 7
PATTERN_ELEMENTS = 1 << 22  # random, then repeated over larger arrays
_CHECK_BLOCKS, _CHECK_PASSES, _CHECK_STEPS = 2, 3, 5
_CHECK_ELEMENTS = 3 * roofs.PER_BLOCK

Call = Callable[[], object]


class RoofDevice(EventDevice, Protocol):
    """What measuring roofs asks of a device, beside the clock's questions."""

    def upload(self, host: np.ndarray) -> Any:
        """A copy on the device."""

    def download(self, array: Any) -> np.ndarray:
        """A copy on the host, after all work is done."""

    def repeated(self, host: np.ndarray, elements: int) -> Any:
        """An array of so many elements on the device that repeats the host's."""

    def link(self, n_bytes: int, to_device: bool, pinned: bool) -> Call:
        """A copy of so many bytes between the host and the device, enqueued on the current stream."""

    def library_product(self, number_format: str) -> tuple[Call, int] | None:
        """A large square product of a library and its operations; None where there is no library or no format."""


class GpuRoofSubject:
    """Measures ceilings on a device. Results in bytes/s, operations/s or seconds."""

    def __init__(self, plan: dict[str, Any], device: RoofDevice | None = None) -> None:
        """``plan``: a GpuPlan as JSON. Checks the streams, then fills as much memory as the largest of them touches."""
        self.plan: GpuPlan = from_json(GpuPlan, plan)
        if device is None:
            from flashperf.cuda.roof_device import CupyRoofDevice

            device = CupyRoofDevice()
        self.device = device
        self.clock = DeviceClock(device)
        self.throttled = 0
        for pattern in roofs.PATTERNS:
            self.check_stream(pattern)
            self.check_shared(pattern)
        largest = max(walk.touched_bytes for walk in self.plan.walks) // 4
        self._buffer = device.repeated(roofs.integers(min(largest, PATTERN_ELEMENTS)), largest)

    # ---- bandwidth ---------------------------------------------------------------------------------------

    def streams(self) -> dict[str, dict[str, float]]:
        """Level -> pattern -> bytes per second."""
        return {
            walk.name: {pattern: self.stream(pattern, walk) for pattern in roofs.PATTERNS}
            for walk in self.plan.walks
        }

    def stream(self, pattern: str, walk: Walk) -> float:
        """Bytes per second of one pattern on one level."""
        count = roofs.PATTERNS[pattern]
        n = walk.touched_bytes // 4 // count
        parts = [self._buffer[i * n : (i + 1) * n] for i in range(count)]
        moved = roofs.stream_bytes(pattern, n, walk.passes)
        return self._best_rate(
            (roofs.stream(pattern, [*parts, *self._sums(pattern, blocks)], blocks, walk.passes), moved)
            for blocks in self.plan.blocks
        )

    def shared(self) -> dict[str, float]:
        """Pattern -> bytes per second from and to the shared memory of all SMs."""
        host, steps = roofs.integers(SHARED_ARRAY_BYTES // 4), self.plan.shared_steps
        found = {}
        for pattern, count in roofs.PATTERNS.items():
            arrays = [self.device.upload(host) for _ in range(count)]
            found[pattern] = self._best_rate(
                (
                    roofs.shared(pattern, [*arrays, *self._sums(pattern, blocks)], blocks, steps),
                    roofs.shared_bytes(pattern, blocks, steps),
                )
                for blocks in self.plan.blocks
            )
        return found

    def links(self) -> dict[str, float]:
        """``pinned to the device`` and so on -> bytes per second.

        What is pageable goes through the host's own copies: the wall times it, to the end of its work.
        """
        found, n_bytes = {}, self.plan.link_bytes
        for kind, pinned in (("pinned", True), ("pageable", False)):
            for where, to_device in (("to the device", True), ("from the device", False)):
                call = self.device.link(n_bytes, to_device, pinned)
                time_s = self._device_s if pinned else self.clock.first_call_s
                time_s(call)  # pages are touched, staging buffers made
                found[f"{kind} {where}"] = n_bytes / min(time_s(call) for _ in range(SAMPLES))
        return found

    # ---- arithmetic --------------------------------------------------------------------------------------

    def peaks(self) -> dict[str, float]:
        """Format -> operations per second of our own kernels."""
        return {number_format: self.peak(number_format) for number_format in roofs.UNITS}

    def peak(self, number_format: str) -> float:
        """Operations per second of one format; every launch that is timed was checked before."""
        steps = self.plan.fma_steps if number_format == "f32" else self.plan.mma_steps
        host = roofs.operands(number_format)
        arrays = [self.device.upload(array) for array in host]
        works = []
        for blocks in self.plan.blocks:
            result = self.device.upload(roofs.peak_result(number_format, blocks))
            launch = roofs.peak(number_format, [*arrays, result], blocks, steps)
            self._run(launch)
            wanted = roofs.peak_expected(number_format, host, blocks, steps)
            _compare(launch.kernel, self.device.download(result), wanted)
            works.append((launch, roofs.peak_operations(number_format, blocks, steps)))
        return self._best_rate(works)

    def library_peaks(self) -> dict[str, float]:
        """Format -> operations per second of a library's product, where there is one: what roofs must not be below."""
        found = {}
        for number_format in roofs.UNITS:
            product = self.device.library_product(number_format)
            if product is not None:
                call, operations = product
                call()
                found[number_format] = operations / self._best_s(call)
        return found

    # ---- fixed costs -------------------------------------------------------------------------------------

    def fixed_costs(self) -> dict[str, float]:
        """Seconds of a launch enqueued by Python, of one that is enqueued already, of one in a graph, of an event."""
        call, count = launcher.call("roofs", [roofs.empty()]), self.plan.launches
        call()

        def several() -> None:
            for _ in range(count):
                call()

        found = {
            "host": min(self.clock.first_call_s(several) for _ in range(SAMPLES)) / count,
            "enqueued": min(self.clock.time_calls(call, count).wall_s for _ in range(SAMPLES)),
            "event": min(self.clock.time_calls(self.device.event, count).wall_s for _ in range(SAMPLES)),
        }
        try:
            graph = self.device.record(call, count)
        except CantRecordError:
            return found
        graph()
        return {**found, "graph": self._best_s(graph) / count}

    def state(self) -> dict[str, Any]:
        """The clock that took the times, and how many samples ran at a reduced clock of the SMs."""
        return {"timer": self.clock.name, "throttled": self.throttled}

    # ---- checks and clocks -------------------------------------------------------------------------------

    def check_stream(self, pattern: str) -> None:
        """Run a stream on small arrays and compare. Raises UserError if it is wrong."""
        host, arrays, result = self._small(pattern, _CHECK_ELEMENTS, roofs.sums_of(_CHECK_BLOCKS))
        launch = roofs.stream(pattern, [*arrays, result], _CHECK_BLOCKS, _CHECK_PASSES)
        self._run(launch)
        got, wanted = self.device.download(result), roofs.moved(pattern, host)
        if pattern == "load":
            got, wanted = got.sum(dtype=np.float64, keepdims=True), _CHECK_PASSES * wanted
        _compare(launch.kernel, got, wanted)

    def check_shared(self, pattern: str) -> None:
        """As ``check_stream`` for shared memory."""
        host, arrays, result = self._small(pattern, SHARED_ARRAY_BYTES // 4, roofs.sums_of(_CHECK_BLOCKS))
        launch = roofs.shared(pattern, [*arrays, result], _CHECK_BLOCKS, _CHECK_STEPS)
        self._run(launch)
        wanted = roofs.moved(pattern, host)
        if pattern == "load":
            wanted = roofs.shared_sums(host[0], _CHECK_BLOCKS, _CHECK_STEPS)
        _compare(launch.kernel, self.device.download(result), wanted)

    def _small(self, pattern: str, elements: int, sums: int) -> tuple[list[np.ndarray], list[Any], Any]:
        host = [roofs.integers(elements, seed) for seed in range(max(1, roofs.PATTERNS[pattern] - 1))]
        unwritten = np.full(sums if pattern == "load" else elements, np.nan, np.float32)
        return host, [self.device.upload(array) for array in host], self.device.upload(unwritten)

    def _sums(self, pattern: str, blocks: int) -> list[Any]:
        """Where a load writes."""
        return [self.device.upload(np.zeros(roofs.sums_of(blocks), np.float32))] if pattern == "load" else []

    def _run(self, launch: Launch) -> None:
        launcher.call("roofs", [launch])()

    def _best_rate(self, works: Iterable[tuple[Launch, int]]) -> float:
        """The highest rate of launches that do so much work each."""
        return max(work / self._best_s(launcher.call("roofs", [launch])) for launch, work in works)

    def _device_s(self, call: Call) -> float:
        return self.clock.time_calls(call, 1).wall_s

    def _best_s(self, call: Call) -> float:
        """The least device seconds of a call, after one untimed; samples at a reduced SM clock don't count."""
        self._device_s(call)
        taken, speeds = [], []
        for _ in range(SAMPLES):
            taken.append(self._device_s(call))
            speeds.append(self.device.sm_clock_mhz())
        kept = drop_throttled(taken, speeds)
        self.throttled += kept.dropped + kept.throttled_kept
        return min(kept.samples_s)


def _compare(kernel: str, got: np.ndarray, wanted: np.ndarray) -> None:
    if not np.array_equal(got, wanted):
        raise UserError(f"{kernel}: wrong result, not timed", EXIT_FAILED)
