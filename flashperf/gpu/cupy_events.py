"""Events, graphs and clocks of an NVIDIA GPU, through CuPy and NVML. Never run on a GPU so far."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from flashperf.emulator_build import source_folder
from flashperf.gpu.clock import CantRecordError

_FLUSH_FACTOR = 2  # of the L2


def current_stream() -> Any:
    """torch's current stream as a CuPy one where torch is in use, else CuPy's own current stream."""
    import cupy

    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream)
    return cupy.cuda.get_current_stream()


class CupyEvents:
    """Device 0, on the stream that is current when a method is called."""

    def __init__(self) -> None:
        import cupy
        import cupyx

        self._cupy = cupy
        properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
        self._flush: Any = cupy.empty(_FLUSH_FACTOR * int(properties["l2CacheSize"]), np.uint8)
        self._flags = cupyx.zeros_pinned((2,), np.int32)  # released, gave up
        self._hold = _hold_module(cupy).get_function("hold")
        self._nvml = _nvml_handle(cupy.cuda.Device().pci_bus_id)

    def hold(self, limit_s: float) -> None:
        self._flags[...] = 0
        released = self._flags.ctypes.data  # one address for host and device: pinned memory is mapped
        args = (np.uint64(released), np.uint64(released + 4), np.int64(limit_s * 1e9))
        with current_stream():
            self._hold((1,), (1,), args)

    def release(self) -> None:
        self._flags[0] = 1

    def gave_up(self) -> bool:
        return bool(self._flags[1])

    def event(self) -> Any:
        event = self._cupy.cuda.Event()
        event.record(current_stream())
        return event

    def between_s(self, first: Any, last: Any) -> float:
        return float(self._cupy.cuda.get_elapsed_time(first, last)) * 1e-3

    def wait(self) -> None:
        self._cupy.cuda.runtime.deviceSynchronize()

    def flush(self) -> None:
        stream = current_stream()
        self._cupy.cuda.runtime.memsetAsync(self._flush.data.ptr, 1, self._flush.nbytes, stream.ptr)

    def record(self, call: Callable[[], object], times: int) -> Callable[[], object]:
        call()  # modules must be loaded before
        self.wait()
        with self._capture_stream() as stream:
            stream.begin_capture()
            try:
                for _ in range(times):
                    call()
            except Exception as error:
                with contextlib.suppress(self._cupy.cuda.runtime.CUDARuntimeError):
                    stream.end_capture()
                raise CantRecordError(f"{type(error).__name__}: {error}".splitlines()[0]) from error
            try:
                graph = stream.end_capture()
            except self._cupy.cuda.runtime.CUDARuntimeError as error:
                raise CantRecordError(str(error)) from error
        return lambda: graph.launch(current_stream())

    @contextlib.contextmanager
    def _capture_stream(self) -> Any:
        """A stream of its own that is both CuPy's and torch's current one: the default stream can't be captured."""
        stream = self._cupy.cuda.Stream(non_blocking=True)
        torch = sys.modules.get("torch")
        on_torch: Any = contextlib.nullcontext()
        if torch is not None and torch.cuda.is_available():
            on_torch = torch.cuda.stream(torch.cuda.ExternalStream(stream.ptr))
        with on_torch, stream:
            yield stream

    def sm_clock_mhz(self) -> float | None:
        if self._nvml is None:
            return None
        import pynvml

        try:
            return float(pynvml.nvmlDeviceGetClockInfo(self._nvml, pynvml.NVML_CLOCK_SM))
        except pynvml.NVMLError:
            return None


def _hold_module(cupy: Any) -> Any:
    """hold.cu as it was built beforehand, else by NVRTC."""
    built = Path(__file__).parent.parent / "_cuda" / "hold.fatbin"
    if built.exists():
        return cupy.RawModule(path=str(built))
    options = ("-std=c++17", f"-I{source_folder() / 'cuda'}")
    code = (source_folder() / "cuda" / "hold.cu").read_text()
    return cupy.RawModule(code=code, options=options, backend="nvrtc")


def _nvml_handle(pci_bus_id: str) -> Any:
    """NVML's handle of a device (package nvidia-ml-py, module pynvml), or None without it."""
    if importlib.util.find_spec("pynvml") is None:
        return None
    import pynvml

    try:
        pynvml.nvmlInit()
        return pynvml.nvmlDeviceGetHandleByPciBusId(pci_bus_id.encode())
    except pynvml.NVMLError:
        return None
