"""Compiles launches ahead of time, without a GPU, with the hints that their arguments would give.

    TRITON_INTERPRET=0 python -m flashperf.kernels._compile sm_90 tiling/blocked/triton/bf16/m=256-k=256-n=256

prints one JSON line per kernel. Results are kept in Triton's own cache: ``TRITON_CACHE_DIR``, or build/triton beside
the sources.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from flashperf import registry
from flashperf.emulator_build import cache_folder
from flashperf.errors import UserError
from flashperf.machine_code import KernelCode, read_cubin
from flashperf.problem import Problem
from flashperf.records import Case

#: What kernels are compiled for: A100, H100 and H200, B200.
ARCHITECTURES = ("sm_80", "sm_90", "sm_100")


#: Variant -> what it needs at least.
_LEAST = {"fp8": 89}


@dataclass(frozen=True)
class Compiled:
    """A kernel of a case as Triton compiled it: its machine code, threads per program, shared memory (bytes)."""

    case: str
    architecture: str
    code: KernelCode
    threads: int
    shared_bytes: int


class _Target:
    """The part of Triton's driver that compiling asks for: which GPU, and that it is there."""

    def __init__(self, capability: int) -> None:
        self.capability = capability

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self.capability, 32)

    def get_current_device(self) -> int:
        return self.capability  # kernels are kept by device

    def get_current_stream(self, device: int) -> int:
        return 0


def kept_in() -> Path:
    """Where compiled kernels are kept."""
    return cache_folder().parent / "triton"


def launches_of(case: Case) -> Sequence[Any]:
    """The launches of a case, bound to CPU tensors that nothing is run on."""
    mechanism = registry.mechanism(case.mechanism)
    problem = Problem(mechanism, case, mechanism.make_inputs(case), mechanism.outputs(case), {})
    call: Any = problem.bind()[0]
    return tuple(call.launches)


def compile_case(case: Case, architectures: Sequence[str]) -> Iterator[Compiled]:
    """Every kernel of a case for every architecture. Must run where Triton doesn't interpret: ``compile_cases``."""
    import triton

    launches = launches_of(case)
    for architecture in architectures:
        capability = int(architecture.removeprefix("sm_"))
        if capability < _LEAST.get(case.variant, 0):
            continue
        triton.runtime.driver.set_active(_Target(capability))
        for launch in launches:
            compiled = launch.kernel.warmup(*launch.args, grid=launch.grid, **launch.options)
            (code,) = _code(compiled).values()
            threads = 32 * int(compiled.metadata.num_warps)
            yield Compiled(case.id, architecture, code, threads, int(compiled.metadata.shared))


def _code(compiled: Any) -> dict[str, KernelCode]:
    """The machine code, read once for each binary."""
    kept = kept_in() / "code" / f"{compiled.hash}.json"
    if kept.exists():
        return {name: KernelCode(**fields) for name, fields in json.loads(kept.read_text()).items()}
    kernels = read_cubin(compiled.asm["cubin"])
    kept.parent.mkdir(parents=True, exist_ok=True)
    partial = kept.with_suffix(f".{os.getpid()}.part")
    partial.write_text(json.dumps({name: asdict(code) for name, code in kernels.items()}))
    partial.replace(kept)
    return kernels


def main(arguments: Sequence[str]) -> int:
    """``sm_90[,sm_80] CASE...``: a JSON line per kernel on standard output."""
    os.environ.setdefault("TRITON_CACHE_DIR", str(kept_in()))
    import triton

    if triton.knobs.runtime.interpret:
        raise UserError("Triton interprets its kernels here: set TRITON_INTERPRET=0 to compile them")
    usage = (
        f"python -m flashperf.kernels._compile {','.join(ARCHITECTURES)} CASE...: architectures, then cases"
    )
    if len(arguments) < 2:
        raise UserError(usage)
    architectures = arguments[0].split(",")
    if not all(re.fullmatch(r"sm_\d{2,3}a?", name) for name in architectures):
        raise UserError(f"{arguments[0]!r} names no architecture; {usage}")
    for text in arguments[1:]:
        for kernel in compile_case(Case.parse(text), architectures):
            print(json.dumps(asdict(kernel)), flush=True)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except UserError as wrong:
        sys.exit(f"flashperf: {wrong}")
