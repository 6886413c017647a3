"""The kernels of a mechanism as compiled for an architecture: machine code, occupancy, expectations."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from flashperf import registry
from flashperf.cuda.launcher import source
from flashperf.errors import UserError
from flashperf.machine_code import KernelCode, Occupancy, compile_kernels, occupancy
from flashperf.machine_code.compiler import check_architecture
from flashperf.predict.expectations import failures
from flashperf.predict.launches import KernelLaunch, largest, launches


@dataclass(frozen=True)
class Inspected:
    """One kernel. ``launch`` is its largest block among the mechanism's cases, None if no case launches it."""

    stem: str
    code: KernelCode
    launch: KernelLaunch | None
    occupancy: Occupancy | None
    failures: tuple[str, ...]


def cuda_mechanisms(name: str | None = None) -> list[str]:
    """Those with CUDA kernels, or the one asked for. Raises UserError if that has none, or is unknown."""
    if name is None:
        return [m.name for m in registry.mechanisms() if "cuda" in m.bind]
    if "cuda" not in registry.mechanism(name).bind:
        raise UserError(f"{name} has no CUDA kernels")
    return [name]


def inspect(names: Sequence[str], architecture: str) -> dict[str, list[Inspected]]:
    """Mechanism -> every kernel of its ``.cu`` file, by name. Raises UserError and CompileError."""
    check_architecture(architecture)
    with ThreadPoolExecutor(2) as pool:  # nvcc takes seconds a file; the launch tables are read meanwhile
        compiling = {name: pool.submit(compile_kernels, source(name), architecture) for name in names}
        launched = {name: largest(launches(name)) for name in names}
        compiled = {name: future.result() for name, future in compiling.items()}
    return {
        name: [
            inspected(name, code, launched[name].get((name, code.name)), architecture)
            for code in sorted(compiled[name].values(), key=lambda code: code.name)
        ]
        for name in names
    }


def inspected(stem: str, code: KernelCode, launch: KernelLaunch | None, architecture: str) -> Inspected:
    """A kernel with its occupancy at that launch."""
    held = None
    if launch is not None:
        held = occupancy(
            architecture, launch.threads, code.registers, code.static_shared_bytes, launch.shared_bytes
        )
    return Inspected(stem, code, launch, held, tuple(failures(stem, code, architecture)))
