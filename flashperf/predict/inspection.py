"""The kernels of a mechanism as compiled for an architecture: machine code, occupancy, expectations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flashperf import registry
from flashperf.cuda.launcher import source
from flashperf.emulator_build import source_folder
from flashperf.errors import UserError
from flashperf.machine_code import KernelCode, Occupancy, compile_kernels, occupancy
from flashperf.machine_code.compiler import check_architecture, two_at_a_time
from flashperf.predict.expectations import failures
from flashperf.predict.launches import KernelLaunch, largest, launches
from flashperf.suggest import unknown_name


@dataclass(frozen=True)
class Inspected:
    """One kernel. ``launch`` is its largest block among the mechanism's cases, None if no case launches it."""

    stem: str
    code: KernelCode
    launch: KernelLaunch | None
    occupancy: Occupancy | None
    failures: tuple[str, ...]


def cuda_files() -> list[str]:
    """The stems of all ``.cu`` files: one for each mechanism with CUDA kernels, and the pipeline's."""
    return sorted(path.stem for path in (source_folder() / "cuda").glob("*.cu"))


def chosen_files(name: str | None = None) -> list[str]:
    """All files, or the one asked for. Raises UserError if there is none of that name."""
    if name is None or name in cuda_files():
        return cuda_files() if name is None else [name]
    if name in registry.names():
        raise UserError(f"{name} has no CUDA kernels")
    raise UserError(unknown_name("mechanism or CUDA file", name, cuda_files()))


def inspect(names: Sequence[str], architecture: str) -> dict[str, list[Inspected]]:
    """File -> every kernel of it, by name. Raises UserError and CompileError."""
    check_architecture(architecture)
    with two_at_a_time() as pool:  # nvcc takes seconds a file; the launch tables are read meanwhile
        compiling = {name: pool.submit(compile_kernels, source(name), architecture) for name in names}
        launched = {name: largest(launches(name)) for name in names if name in registry.names()}
        compiled = {name: future.result() for name, future in compiling.items()}
    return {
        name: [
            inspected(name, code, launched.get(name, {}).get((name, code.name)), architecture)
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
