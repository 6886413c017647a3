"""The traffic of a mechanism's CUDA variant: its launches traced, its caches simulated, its Cost beside both."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod

from flashperf import registry
from flashperf.cuda.launcher import EmulatedCall, source
from flashperf.errors import UserError
from flashperf.gpus import Gpu
from flashperf.machine_code import KernelCode, compile_kernels, occupancy, why_not
from flashperf.machine_code.occupancy import block_shared_bytes, limits
from flashperf.problem import load_problem
from flashperf.records import Case, Cost, Mechanism, Placement
from flashperf.traffic.hierarchy import CacheCounts, Shape, simulate
from flashperf.traffic.summary import LineTraffic, Traffic, by_line, summarise
from flashperf.traffic.trace import Trace, Tracer, spans


@dataclass(frozen=True)
class KernelTraffic:
    """One kernel of a call: its requests, and the caches of a GPU in a likely order and block after block."""

    traffic: Traffic
    caches: CacheCounts
    caches_in_order: CacheCounts
    resident_blocks: int
    lines: tuple[LineTraffic, ...] = ()


@dataclass(frozen=True)
class CaseTraffic:
    """A case on a simulated GPU. ``cost`` is what the mechanism declares; nothing here was measured."""

    case: Case
    cost: Cost
    gpu: Gpu
    kernels: tuple[KernelTraffic, ...]
    registers_known: bool

    @property
    def read_bytes(self) -> int:
        """Compulsory: different bytes read by each launch, summed."""
        return sum(kernel.traffic.read_bytes for kernel in self.kernels)

    @property
    def written_bytes(self) -> int:
        """Compulsory: different bytes written by each launch, summed."""
        return sum(kernel.traffic.written_bytes for kernel in self.kernels)

    @property
    def bytes_ratio(self) -> float:
        """Simulated compulsory bytes over declared ones: 1 where Cost is right."""
        return (self.read_bytes + self.written_bytes) / self.cost.bytes if self.cost.bytes else float("nan")

    @property
    def caches(self) -> CacheCounts:
        """Of the whole call."""
        return sum_caches(kernel.caches for kernel in self.kernels)

    @property
    def caches_in_order(self) -> CacheCounts:
        """Of the whole call, had its blocks run one after another."""
        return sum_caches(kernel.caches_in_order for kernel in self.kernels)


def sum_caches(counts: Iterable[CacheCounts]) -> CacheCounts:
    """Everything added up."""
    rows = list(counts)
    return CacheCounts(*(sum(getattr(row, n) for row in rows) for n in CacheCounts.__dataclass_fields__))


def cuda_cases(
    mechanism: Mechanism,
    variants: Sequence[str] | None = None,
    dtype: str | None = None,
    kind: str = "test",
    sizes: dict[str, int | str] | None = None,
) -> list[Case]:
    """A case for each CUDA variant: the largest test size (the first bench size) of each operator, or ``sizes``.

    Raises UserError for a mechanism without CUDA variants, for unknown names and sizes.
    """
    if "cuda" not in mechanism.bind:
        raise UserError(f"{mechanism.name} has no CUDA kernels")
    dtypes = [dtype] if dtype else list(mechanism.dtypes[:1])
    wanted = variants or [name for name, backends in mechanism.variants.items() if "cuda" in backends]
    cases = registry.cases(mechanism, kind, ["cuda"], dtypes, wanted)
    if not cases:
        raise UserError(f"{mechanism.name}: {', '.join(wanted)} has no CUDA kernels")
    chosen: dict[tuple[str, tuple[str, ...]], Case] = {}
    for case in cases:
        key = case.variant, tuple(value for _, value in case.sizes if isinstance(value, str))
        if key not in chosen or (kind == "test" and _volume(case) > _volume(chosen[key])):
            chosen[key] = case
    found = list(chosen.values())
    if sizes:
        found = [_resized(case, sizes) for case in found if _has(case, sizes)]
        if not found:
            raise UserError(f"no case of {mechanism.name} has {sizes}")
    return sorted(found, key=lambda case: [str(v) for _, v in case.sizes if isinstance(v, str)])


def _volume(case: Case) -> int:
    return prod(value for _, value in case.sizes if isinstance(value, int))


def _has(case: Case, sizes: dict[str, int | str]) -> bool:
    """Whether the words among ``sizes`` are those of the case. Raises UserError for a size that it can't have."""
    own = dict(case.sizes)
    for name, value in sizes.items():
        if name not in own:
            raise UserError(f"{case.mechanism} has no size {name!r}: it has {', '.join(own)}")
        if isinstance(own[name], int) and not isinstance(value, int):
            raise UserError(f"size {name} of {case.mechanism} is a number, not {value!r}")
    return all(own[name] == value for name, value in sizes.items() if isinstance(own[name], str))


def _resized(case: Case, sizes: dict[str, int | str]) -> Case:
    return replace(case, sizes=tuple((name, sizes.get(name, value)) for name, value in case.sizes))


@functools.cache
def tracer(stem: str) -> Tracer:
    """The traced build of ``csrc/cuda/<stem>.cu``."""
    return Tracer(source(stem))


def trace_case(mechanism: Mechanism, case: Case) -> tuple[str, list[Trace], Cost]:
    """Run a case traced and check its outputs: the stem of its ``.cu`` file, a trace per launch, its Cost.

    Raises as ``load_problem`` does, and WrongResult for a kernel whose output is wrong.
    """
    problem = load_problem(mechanism, case, emulated=True)
    call, inputs, outputs = problem.bind()
    if not isinstance(call, EmulatedCall):
        raise UserError(f"{case.id} runs on a GPU here: its launches can't be traced")
    memory = spans(call.launches)
    traces = [tracer(call.mechanism).run(launch, memory) for launch in call.launches]
    problem.check(call, inputs, outputs)
    return call.mechanism, traces, problem.cost


def shape_of(trace: Trace, gpu: Gpu, code: KernelCode | None) -> Shape:
    """The caches beside one launch. Without its machine code its registers don't limit the resident blocks."""
    launch = trace.launch
    static = code.static_shared_bytes if code else trace.static_shared_bytes
    held = occupancy(
        gpu.architecture, prod(launch.block), code.registers if code else 1, static, launch.shared_bytes
    )
    blocks = max(1, held.blocks)
    used = blocks * block_shared_bytes(static, launch.shared_bytes)
    return Shape(gpu.sms, limits(gpu.architecture).l1_bytes(used), gpu.l2_bytes, blocks)


def case_traffic(mechanism: Mechanism, case: Case, gpu: Gpu, lines: bool = False) -> CaseTraffic:
    """Trace a case and simulate the caches of ``gpu``; ``lines`` adds every access by its place in the source."""
    stem, traces, cost = trace_case(mechanism, case)
    code = {} if why_not() else compile_kernels(source(stem), gpu.architecture)
    shapes = [shape_of(trace, gpu, code.get(trace.launch.kernel)) for trace in traces]
    likely, in_order = simulate(traces, shapes), simulate(traces, shapes, in_order=True)
    kernels = []
    for name in dict.fromkeys(trace.launch.kernel for trace in traces):
        mine = [i for i, trace in enumerate(traces) if trace.launch.kernel == name]
        total, *more = (summarise(traces[i]) for i in mine)
        for one in more:
            total += one
        kernels.append(
            KernelTraffic(
                total,
                sum_caches(likely[i] for i in mine),
                sum_caches(in_order[i] for i in mine),
                shapes[mine[0]].resident_blocks,
                tuple(by_line(traces[mine[0]])) if lines else (),
            )
        )
    return CaseTraffic(case, cost, gpu, tuple(kernels), bool(code))


def with_traffic(placement: Placement, found: CaseTraffic) -> Placement:
    """The placement with the simulated compulsory bytes beside the declared ones."""
    return replace(
        placement,
        simulated_bytes=found.read_bytes + found.written_bytes,
        simulated_over_declared=found.bytes_ratio,
    )
