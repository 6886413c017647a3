"""The pipeline's engine on a GPU, or on the CPU emulator of its kernels where there is none.

``DeviceEngine`` is all that an engine needs on any device: memory, the host's twins, sequences as graphs. What makes
it CUDA is one function, ``bind_cuda``: a kernel's name and arrays in, a call that enqueues its work out. An engine
for kernels of another kind (Triton) is ``DeviceEngine`` with a ``bind`` of its own, for the same names and arrays:

    class TritonEngine(DeviceEngine):
        def __init__(self) -> None:
            super().__init__(device(), bind_triton, "triton")

Arrays are NumPy's or CuPy's, with bf16 as uint16; ``torch.as_tensor(array).view(torch.bfloat16)`` shares their memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from flashperf.backends import available
from flashperf.cuda import launcher
from flashperf.cuda.pipeline import steps
from flashperf.dtypes import cast
from flashperf.errors import UserError
from flashperf.pipeline.device import Device, HostDevice, Run, typed
from flashperf.pipeline.device_memory import Beside, HostWeights, MemoryCall, memory_call
from flashperf.pipeline.engine import PlannedCall, call_key

#: Kernel name, arrays, scalars -> a call that enqueues its work on the device's stream. Everything about the
#: arguments is checked here; ValueError for what the kernel doesn't take.
Bind = Callable[[str, Sequence[Any], Mapping[str, float]], Run]


class DeviceCall:
    """A bound call: enqueues its work, and counts how often it ran, in graphs too."""

    def __init__(self, enqueue: Run) -> None:
        self.enqueue = enqueue
        self._alone = 0
        self._graphs: list[Graph] = []

    def __call__(self) -> None:
        self._alone += 1
        self.enqueue()

    @property
    def count(self) -> int:
        """Runs so far, one by one and as a part of graphs."""
        return self._alone + sum(graph.replays for graph in self._graphs)

    @count.setter
    def count(self, value: int) -> None:
        """What ran without this call knowing (bound anew, as ``dispatch=eager`` does) is added from outside."""
        self._alone += value - self.count

    def joins(self, graph: Graph) -> None:
        """From now on the graph's replays are runs of this call."""
        self._graphs.append(graph)


class Graph:
    """Calls that are launched as one: run one by one the first time, when modules may still load, then recorded.

    ``loaded``: they have run before, so they are recorded at once.
    """

    def __init__(self, device: Device, calls: Sequence[DeviceCall], loaded: bool = False) -> None:
        self._device, self._calls = device, tuple(calls)
        self._launch: Run | None = device.record(self._enqueue) if loaded else None
        self.replays = 0
        for call in self._calls:
            call.joins(self)

    def __call__(self) -> None:
        if self._launch is None:
            self._enqueue()
            self._launch = self._device.record(self._enqueue)
        else:
            self._launch()
        self.replays += 1

    def _enqueue(self) -> None:
        for call in self._calls:
            call.enqueue()


class DeviceSequence:
    """Calls in order: graphs over the segments between what the host must do itself."""

    def __init__(self, device: Device, runs: Sequence[Run]) -> None:
        self._device, self.runs = device, tuple(runs)
        self._segments: list[Run] = []
        for on_device, part in groupby(self.runs, lambda run: isinstance(run, DeviceCall)):
            made = tuple(part)
            self._segments += [Graph(device, made)] if on_device else made  # type: ignore[arg-type]

    @property
    def graphs(self) -> int:
        """How many graphs it launches: one, unless the host has to act in between."""
        return sum(isinstance(segment, Graph) for segment in self._segments)

    def __call__(self) -> None:
        for segment in self._segments:
            segment()

    def __len__(self) -> int:
        return len(self.runs)

    def timed(self) -> np.ndarray:
        """Run the calls one by one; nanoseconds of each on the device, int64."""
        return self._device.time_each(self.runs)


class DeviceEngine:
    """Any device, any kind of kernels."""

    def __init__(self, device: Device, bind: Bind, backend: str) -> None:
        self.device, self._kernels, self.backend = device, bind, backend
        self._weights = HostWeights(device)
        self._twins: dict[int, tuple[Any, np.ndarray]] = {}

    def forget(self) -> None:
        """Let go of the host's twins and copies: all that was bound before is bound again."""
        self._twins, self._weights = {}, HostWeights(self.device)

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        return self.device.empty(shape, dtype)

    def constant(self, shape: tuple[int, ...], dtype: str, make: Callable[[], np.ndarray]) -> Any:
        values = np.ascontiguousarray(make())
        array = self.device.empty(shape, dtype)
        if values.shape != shape:
            raise RuntimeError(f"a constant has shape {values.shape}, was declared {shape}")
        self.device.copy_in(array, values if values.dtype == array.dtype else cast(values, dtype))
        self.device.wait()
        return array

    def prepare(self, kernel: str, *arrays: Any, **scalars: float) -> PlannedCall:
        run = self.bind(kernel, *arrays, **scalars)
        return PlannedCall(call_key(kernel, arrays), kernel, run, arrays, scalars)

    def bind(self, kernel: str, *arrays: Any, **scalars: float) -> DeviceCall | MemoryCall:
        """The bound call alone; what a framework does for each call, if it dispatches one by one.

        Raises UserError for a kernel that this backend doesn't have, or sizes that it doesn't take.
        """
        in_memory = memory_call(self.device, self._weights, kernel, arrays, scalars)
        if in_memory is not None:
            return in_memory
        try:
            return DeviceCall(self._kernels(kernel, arrays, scalars))
        except ValueError as error:
            raise UserError(f"{self.backend}: {kernel} can't be bound: {error}") from error

    def background(self) -> Beside:
        """The second stream, for copies beside the calls."""
        return Beside(self.device)

    def sequence(self, calls: Sequence[PlannedCall]) -> DeviceSequence:
        return DeviceSequence(self.device, [call.run for call in calls])

    def region(self, n_bytes: int) -> Any:
        """Memory of its own, u8, asked of the driver; zeros, since a cache is read where nothing was written yet."""
        memory = self.device.allocate(n_bytes, "fresh")
        memory.fill(0)
        return memory

    def typed(self, region: Any, shape: tuple[int, ...], dtype: str) -> Any:
        """The beginning of a region as an array."""
        return typed(region, shape, dtype)

    def host(self, array: Any) -> np.ndarray:
        """A pinned twin of the array, made on first use."""
        if id(array) not in self._twins:
            kinds = {np.dtype(np.int32): "i32", np.dtype(np.float32): "f32"}
            twin = self.device.pinned(array.shape, kinds[array.dtype])
            self._twins[id(array)] = (array, twin)  # the array stays alive, so that its id stays its own
        return self._twins[id(array)][1]

    def upload(self, array: Any) -> None:
        self.device.copy_in(array, self.host(array))

    def read(self, array: Any) -> np.ndarray:
        return self.device.copy_out(array)

    def wait(self) -> None:
        self.device.wait()

    def back_to_back(self, runs: Sequence[Run]) -> Run:
        """Calls in order as one graph, and what follows it: the host waits. Others (host work) one by one."""
        if not all(isinstance(run, DeviceCall) for run in runs):
            return lambda: self._one_by_one(runs)
        graph = Graph(self.device, runs, loaded=True)  # type: ignore[arg-type]

        def run() -> None:
            graph()
            self.device.wait()

        return run

    def _one_by_one(self, runs: Sequence[Run]) -> None:
        for run in runs:
            run()
        self.device.wait()

    def time_cold(self, run: Run) -> float:
        """Seconds of a call with the device's L2 emptied before it; the latency of one launch is inside."""
        self.device.flush_cache()
        return float(self.device.time_each([run])[0]) * 1e-9

    def used_bytes(self) -> int:
        """Device memory that this process has taken."""
        return self.device.used_bytes()


def device() -> Device:
    """The GPU, or the stand-in on the host."""
    if available("cuda"):
        return HostDevice()
    from flashperf.pipeline.cupy_device import CupyDevice

    return CupyDevice()


def bind_cuda(kernel: str, arrays: Sequence[Any], scalars: Mapping[str, float]) -> Run:
    """The launches of one of the pipeline's kernels, by module and in order."""
    calls = [launcher.call(step.module, [step.launch]) for step in steps(kernel, arrays, scalars)]
    if len(calls) == 1:
        return calls[0]

    def run() -> None:
        for call in calls:
            call()

    return run


class CudaEngine(DeviceEngine):
    """CUDA C++ kernels."""

    def __init__(self) -> None:
        super().__init__(device(), bind_cuda, "cuda")
