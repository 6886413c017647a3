"""Runs CUDA C++ kernels on the CPU: ``Module`` in this process, ``replay`` under the sanitizers.

What a GPU would refuse, hang in or leave undefined is an ``EmulatorError`` that says which threads of which
block wait where. One block runs at a time and a fiber stands for each CUDA thread (csrc/emulator): this shows
whether a kernel is right, not how fast it is.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from flashperf.emulator_build import build
from flashperf.suggest import unknown_name

Dims = tuple[int, ...]
#: An array for a pointer, a number for a scalar, None for a null pointer.
Argument = np.ndarray | np.generic | int | float | None

#: What csrc/emulator/publish.h calls an element type -> the NumPy type that holds it.
_ELEMENTS: dict[str, type[np.generic]] = {
    "f64": np.float64,
    "f32": np.float32,
    "f16": np.float16,
    "bf16": np.uint16,
    "i8": np.int8,
    "u8": np.uint8,
    "i16": np.int16,
    "u16": np.uint16,
    "i32": np.int32,
    "u32": np.uint32,
    "i64": np.int64,
    "u64": np.uint64,
}
_SANITIZER_OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0",
    "TSAN_OPTIONS": "halt_on_error=1",
}
_LAUNCH_FAILED = 3  # exit status of csrc/emulator/replay.cpp


class EmulatorError(RuntimeError):
    """A launch that a GPU would refuse, hang in or leave undefined; the message names block and threads."""


class SanitizerError(RuntimeError):
    """A sanitizer stopped the program; the message is its report."""


@dataclass(frozen=True)
class Launch:
    """One launch: grid and block in CUDA's order (x, y, z), arguments in the kernel's order."""

    kernel: str
    grid: Dims
    block: Dims
    args: tuple[Argument, ...]
    shared_bytes: int = 0


def _three(dims: Dims) -> tuple[int, int, int]:
    if not 1 <= len(dims) <= 3:
        raise ValueError(f"a grid or block has 1 to 3 sizes, not {dims}")
    x, y, z = (*dims, 1, 1)[:3]
    return x, y, z


def _check_array(kernel: str, position: int, kind: str, array: np.ndarray) -> None:
    where = f"{kernel}: argument {position} ({kind})"
    element = kind.removeprefix("const ").rstrip("*")
    if element != "any" and array.dtype != _ELEMENTS[element]:
        raise TypeError(f"{where} has dtype {array.dtype}, needs {np.dtype(_ELEMENTS[element])}")
    if not array.flags.c_contiguous:
        raise ValueError(f"{where} is not C-contiguous")
    if not kind.startswith("const ") and not array.flags.writeable:
        raise ValueError(f"{where} is read-only, but the kernel may write it")


def _scalar(kernel: str, position: int, kind: str, value: Argument) -> np.generic:
    """The value in the parameter's own type. A NumPy scalar of another type is refused, not converted."""
    if value is None and kind.endswith("*"):
        return np.uint64(0)
    if value is None or isinstance(value, np.ndarray) or kind.endswith("*"):
        raise TypeError(f"{kernel}: argument {position} ({kind}) is a {type(value).__name__}")
    if isinstance(value, np.generic) and value.dtype != _ELEMENTS[kind]:
        raise TypeError(f"{kernel}: argument {position} ({kind}) has dtype {value.dtype}")
    return _ELEMENTS[kind](value)  # type: ignore[call-arg]


def _check_launch(launch: Launch, kernels: Mapping[str, tuple[str, ...]]) -> None:
    if launch.kernel not in kernels:
        raise EmulatorError(unknown_name("kernel", launch.kernel, kernels))
    kinds = kernels[launch.kernel]
    if len(launch.args) != len(kinds):
        needed = ", ".join(kinds)
        raise TypeError(f"{launch.kernel}: takes {len(kinds)} arguments ({needed}), got {len(launch.args)}")


class Module:
    """The kernels of one ``.cu`` file, compiled (or taken from the cache) and loaded into this process."""

    def __init__(self, source: Path | str, defines: Sequence[str] = (), *, traced: bool = False) -> None:
        self.library = ctypes.CDLL(str(build(source, defines=defines, traced=traced)))
        self.library.emulator_kernel_name.restype = ctypes.c_char_p
        self.library.emulator_parameter_types.restype = ctypes.c_char_p
        self.library.emulator_launch.restype = ctypes.c_char_p
        names = iter(lambda: self.library.emulator_kernel_name(len(self.kernels)), None)
        #: Kernel name -> the type of each parameter, such as ``const f32*`` or ``i32``.
        self.kernels: dict[str, tuple[str, ...]] = {}
        for name in names:
            kinds = self.library.emulator_parameter_types(name).decode()
            self.kernels[name.decode()] = tuple(kinds.split(",")) if kinds else ()

    def launch(
        self,
        kernel: str,
        grid: Dims,
        block: Dims,
        args: Sequence[Argument],
        shared_bytes: int = 0,
        order: str = "forward",
    ) -> None:
        """Run a kernel to its end. ``order`` of the threads: ``forward``, ``reverse`` or ``random:SEED``."""
        self.run(Launch(kernel, grid, block, tuple(args), shared_bytes), order)

    def run(self, launch: Launch, order: str = "forward") -> None:
        """As ``launch``. Raises EmulatorError, or TypeError and ValueError for arguments that don't fit."""
        _check_launch(launch, self.kernels)
        kinds = self.kernels[launch.kernel]
        values: list[np.ndarray] = []  # one element each, kept alive over the call
        for i, (kind, value) in enumerate(zip(kinds, launch.args, strict=True)):
            if isinstance(value, np.ndarray) and kind.endswith("*"):
                _check_array(launch.kernel, i, kind, value)
                values.append(np.array([value.ctypes.data], dtype=np.uint64))
            else:
                values.append(np.array([_scalar(launch.kernel, i, kind, value)]))
        parameters = (ctypes.c_void_p * max(1, len(values)))(*[v.ctypes.data for v in values])
        three = ctypes.c_uint * 3
        failure = self.library.emulator_launch(
            launch.kernel.encode(),
            three(*_three(launch.grid)),
            three(*_three(launch.block)),
            ctypes.c_size_t(launch.shared_bytes),
            order.encode(),
            parameters,
        )
        if failure is not None:
            raise EmulatorError(failure.decode())


@dataclass
class _Block:
    """A stretch of memory that some arrays of the launches lie in; arrays that overlap share one."""

    start: int
    end: int
    written: bool


def _blocks(launches: Sequence[Launch], kernels: Mapping[str, tuple[str, ...]]) -> list[_Block]:
    """The memory of all array arguments, as disjoint blocks in order of address."""
    spans = []
    for launch in launches:
        for i, (kind, value) in enumerate(zip(kernels[launch.kernel], launch.args, strict=True)):
            if isinstance(value, np.ndarray):
                _check_array(launch.kernel, i, kind, value)
                start = value.ctypes.data
                spans.append((start, start + value.nbytes, not kind.startswith("const ")))
    merged: list[_Block] = []
    for start, end, written in sorted(spans):
        if merged and start < merged[-1].end:
            merged[-1].end = max(merged[-1].end, end)
            merged[-1].written |= written
        else:
            merged.append(_Block(start, end, written))
    return merged


def _request(
    launches: Sequence[Launch], kernels: Mapping[str, tuple[str, ...]], blocks: Sequence[_Block], order: str
) -> bytes:
    """The bytes that csrc/emulator/replay.cpp reads."""
    text = bytearray()
    for block in blocks:
        size = block.end - block.start
        text += f"buffer {size}\n".encode() + ctypes.string_at(block.start, size)
    for launch in launches:
        kinds = kernels[launch.kernel]
        dims = " ".join(str(n) for n in (*_three(launch.grid), *_three(launch.block)))
        text += f"launch {launch.kernel} {dims} {launch.shared_bytes} {order} {len(kinds)}\n".encode()
        for i, (kind, value) in enumerate(zip(kinds, launch.args, strict=True)):
            if isinstance(value, np.ndarray):
                at = value.ctypes.data
                index = next(n for n, block in enumerate(blocks) if block.start <= at < block.end)
                text += f"pointer {index} {at - blocks[index].start}\n".encode()
            else:
                raw = _scalar(launch.kernel, i, kind, value).tobytes()
                text += f"scalar {len(raw)}\n".encode() + raw
    return bytes(text)


def replay(
    source: Path | str,
    launches: Sequence[Launch],
    *,
    sanitizers: Sequence[str] = (),
    order: str = "forward",
    defines: Sequence[str] = (),
) -> None:
    """Run launches, one after another, in a program of their own; arrays are updated as by ``Module.run``.

    ``sanitizers``: any of ``address`` and ``undefined``, or ``thread`` alone. Every array's memory is a heap
    block of its own size there, so that an access one byte past it is found. Raises SanitizerError with the
    report, EmulatorError as ``Module.run`` does.
    """
    program = build(source, sanitizers=sanitizers, defines=defines, program=True)
    kernels = Module(source, defines).kernels
    for launch in launches:
        _check_launch(launch, kernels)
    blocks = _blocks(launches, kernels)
    with tempfile.TemporaryDirectory() as folder:
        request, results = Path(folder) / "launches", Path(folder) / "results"
        request.write_bytes(_request(launches, kernels, blocks, order))
        command = [str(program), str(request), str(results)]
        environment = {**os.environ, **_SANITIZER_OPTIONS}
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        if done.returncode == _LAUNCH_FAILED:
            raise EmulatorError(done.stderr.rstrip("\n"))
        if done.returncode:
            raise SanitizerError(done.stderr or f"the program ended with status {done.returncode}")
        raw, position = results.read_bytes(), 0
    for block in blocks:
        size = block.end - block.start
        if block.written:
            ctypes.memmove(block.start, raw[position : position + size], size)
        position += size
