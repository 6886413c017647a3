"""Binds launches to a GPU through CuPy, or to the CPU emulator where there is none.

A mechanism's module builds its launches from arrays (``flashperf.emulator.Launch``); nothing in them says
where they run. On a GPU the arrays are copied to the device once, when they are bound.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from flashperf.backends import available
from flashperf.cuda import binaries
from flashperf.emulator import Launch, Module
from flashperf.emulator_build import source_folder

Arrays = Mapping[str, Any]
#: An array of the host and its copy on the device.
Copied = tuple[np.ndarray, Any]
#: Named arrays -> the launches of one call, in order. Called once, when the call is bound.
Table = Callable[[Mapping[str, Any]], Sequence[Launch]]

_STATIC_SHARED_LIMIT_BYTES = 48 << 10  # above this a kernel must opt in to more dynamic shared memory


def ceil_div(a: int, b: int) -> int:
    """How many blocks of ``b`` cover ``a``."""
    return -(-a // b)


def source(mechanism: str) -> Path:
    """``csrc/cuda/<mechanism>.cu``."""
    return source_folder() / "cuda" / f"{mechanism}.cu"


@functools.cache
def emulated_module(mechanism: str) -> Module:
    """The mechanism's kernels, built for the emulator."""
    return Module(source(mechanism))


@functools.cache
def gpu_module(mechanism: str) -> Any:
    """The mechanism's kernels as a CuPy module: the fat binary if it was built from this source, else by NVRTC.

    The binary is loaded from its file: of a source CuPy would compile for an architecture of its own choice.
    """
    import cupy

    if binary := binaries.current(source(mechanism)):
        return cupy.RawModule(path=str(binary))
    options = ("-std=c++17", f"-I{source_folder() / 'cuda'}")
    return cupy.RawModule(code=source(mechanism).read_text(), options=options, backend="nvrtc")


class EmulatedCall:
    """A call on the CPU emulator, on the host arrays themselves."""

    def __init__(self, mechanism: str, launches: Sequence[Launch], order: str = "forward") -> None:
        self.launches = tuple(launches)
        #: Whose turn it is: ``forward``, ``reverse`` or ``random:SEED``. May be set between calls.
        self.order = order
        #: Their ``.cu`` file. It is built when the call is first made: who only reads launches needs no g++.
        self.mechanism = mechanism

    def __call__(self) -> None:
        module = emulated_module(self.mechanism)
        for launch in self.launches:
            module.run(launch, self.order)

    def upload(self) -> None:
        """Nothing to do: the arrays are the host's."""

    def collect(self) -> None:
        """Nothing to do: the arrays are the host's."""


class GpuCall:
    """A call on the GPU: enqueues its launches on torch's current stream, else on CuPy's, and returns."""

    def __init__(
        self, mechanism: str, launches: Sequence[Launch], inputs: Iterable[Copied], outputs: Iterable[Copied]
    ) -> None:
        self._inputs, self._outputs = list(inputs), list(outputs)
        self._launches = [(self._function(mechanism, launch), launch) for launch in launches]

    @staticmethod
    def _function(mechanism: str, launch: Launch) -> Any:
        function = gpu_module(mechanism).get_function(launch.kernel)
        if launch.shared_bytes > _STATIC_SHARED_LIMIT_BYTES:
            function.max_dynamic_shared_size_bytes = launch.shared_bytes
        return function

    def __call__(self) -> None:
        with _current_stream():
            self._enqueue()

    def _enqueue(self) -> None:
        for function, launch in self._launches:
            args = tuple(np.uint64(0) if arg is None else arg for arg in launch.args)
            function(launch.grid, launch.block, args, shared_mem=launch.shared_bytes)

    def upload(self) -> None:
        """Copy the host's outputs to the device, as they are now."""
        with _current_stream() as stream:
            for host, device in self._outputs:
                device.set(host)
            stream.synchronize()

    def collect(self) -> None:
        """Wait for the work and copy outputs back, and inputs: a kernel that wrote one is to be found out."""
        with _current_stream() as stream:
            for host, device in (*self._inputs, *self._outputs):
                host[...] = device.get()
            stream.synchronize()


class GraphCall(GpuCall):
    """As GpuCall, with the launches captured in a CUDA graph when bound: a call launches the graph."""

    def __init__(
        self, mechanism: str, launches: Sequence[Launch], inputs: Iterable[Copied], outputs: Iterable[Copied]
    ) -> None:
        import cupy

        super().__init__(mechanism, launches, inputs, outputs)
        self._enqueue()  # modules must be loaded before the capture
        cupy.cuda.get_current_stream().synchronize()
        with cupy.cuda.Stream(non_blocking=True) as stream:
            stream.begin_capture()
            self._enqueue()
            self._graph = stream.end_capture()

    def __call__(self) -> None:
        self._graph.launch(stream=_current_stream())


def call(mechanism: str, launches: Sequence[Launch]) -> EmulatedCall | GpuCall:
    """Launches on arrays that lie where the kernels run: CuPy's on a GPU, NumPy's for the emulator."""
    if available("cuda"):
        return EmulatedCall(mechanism, launches)
    return GpuCall(mechanism, launches, [], [])


def _current_stream() -> Any:
    """torch's current stream as a CuPy context where torch is in use, else CuPy's own current stream."""
    import cupy

    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream)
    return cupy.cuda.get_current_stream()


def bind(
    mechanism: str,
    table: Table,
    inputs: Arrays,
    outputs: Arrays,
    scratch: Arrays | None = None,
    *,
    graph: bool = False,
) -> EmulatedCall | GpuCall:
    """Bind a table of launches to named arrays; ``scratch`` is memory that only the kernels use.

    The call writes the outputs: at once with the emulator, on ``collect()`` with a GPU (DeviceCall in
    flashperf/problem.py). ``graph`` makes one CUDA graph of the launches; the emulator runs them one by one.
    """
    names = {**(scratch or {}), **inputs, **outputs}
    if available("cuda"):
        return EmulatedCall(mechanism, table(names))
    import cupy

    device = {name: cupy.asarray(array) for name, array in names.items()}
    kind = GraphCall if graph else GpuCall
    copied = ([(arrays[name], device[name]) for name in arrays] for arrays in (inputs, outputs))
    return kind(mechanism, table(device), *copied)


@functools.cache
def resident_blocks(per_sm: int = 4) -> int:
    """How many blocks a persistent kernel launches: ``per_sm`` on every SM; 6 where there is no GPU."""
    if available("cuda"):
        return 6
    import cupy

    return per_sm * int(cupy.cuda.Device().attributes["MultiProcessorCount"])
