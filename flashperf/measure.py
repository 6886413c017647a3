"""Isolated cases: bound to fresh buffers, checked against float64, and only then timed, in pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import threadpoolctl

from flashperf import registry
from flashperf.blocks import Block, BlockRunner, CacheSweep
from flashperf.check import check_outputs
from flashperf.disturbance import Probe, SystemProbe
from flashperf.dtypes import NUMPY_TYPES, aligned_empty, from_bf16, poison
from flashperf.environment import last_level_cache_bytes
from flashperf.errors import EXIT_FAILED, UserError
from flashperf.native import PrepareError
from flashperf.records import Arrays, ArraySpec, Case, Check, Cost, Environment, Measurement, Mechanism
from flashperf.suggest import unknown_name
from flashperf.timers import SYSTEM_CLOCK, Clock, calibrate, time_calls

_SECOND_POISON_BYTE = 0x5A  # far from -1: an integer output left unwritten can't pass under both


class BadCase(UserError):
    """A case or its inputs are not fit to be measured: a size, a variant, NaN in the inputs."""


class Unavailable(UserError):
    """The case can't run on this machine; the message says why."""


class WrongResult(UserError):
    """A kernel whose output is wrong: it was not timed. ``check`` has the worst index, the error and the limit."""

    def __init__(self, who: str, check: Check) -> None:
        super().__init__(f"{who}: wrong result, not timed: {check.reason}", EXIT_FAILED)
        self.who, self.check = who, check


def aligned_like(array: np.ndarray) -> np.ndarray:
    """A 64-byte aligned copy of an array of any dtype."""
    raw = aligned_empty((array.nbytes,), "u8")
    copy = raw.view(array.dtype).reshape(array.shape) if array.nbytes else np.empty_like(array)
    copy[...] = array
    return copy


@dataclass(frozen=True)
class Problem:
    """A case with what it is judged by: pristine inputs, the float64 reference, tolerance and cost."""

    mechanism: Mechanism
    case: Case
    inputs: Arrays
    specs: dict[str, ArraySpec]
    reference: Arrays

    @property
    def cost(self) -> Cost:
        return self.mechanism.cost(self.case)

    def bind(self) -> tuple[Callable[[], None], Arrays, Arrays]:
        """Fresh inputs, fresh poisoned outputs (all 64-byte aligned), and the call bound to them."""
        inputs = {name: aligned_like(array) for name, array in self.inputs.items()}
        outputs = {name: aligned_empty(spec.shape, spec.dtype) for name, spec in self.specs.items()}
        for array in outputs.values():
            poison(array)
        try:
            call = self.mechanism.bind[self.case.backend](self.case, inputs, outputs)
        except PrepareError as error:
            raise BadCase(f"{self.case.id}: {error}") from error
        for array in outputs.values():
            poison(array)  # again: work done while binding must not pass for the call's
        return call, inputs, outputs

    def check(self, inputs: Arrays, outputs: Arrays) -> Check:
        """Judge the outputs of a call, and that it left its inputs as they were. Raises WrongResult."""
        check = check_outputs(self.specs, outputs, self.reference, self.mechanism.tolerance(self.case))
        for name, before in self.inputs.items():
            changed = _first_difference(before, inputs[name])
            if check.passed and changed is not None:
                reason = f"the call changed its input {name} at {list(changed)}"
                check = Check(False, 0.0, 0.0, 0.0, changed, 0.0, reason, name)
        if not check.passed:
            raise WrongResult(self.case.id, check)
        return check


def _first_difference(before: np.ndarray, after: np.ndarray) -> tuple[int, ...] | None:
    if before.shape != after.shape or before.dtype != after.dtype:
        return ()
    item = np.dtype((np.void, before.itemsize))
    different = np.ascontiguousarray(before).view(item) != np.ascontiguousarray(after).view(item)
    if not different.any():
        return None
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(different)), before.shape))


def load_problem(mechanism: Mechanism, case: Case) -> Problem:
    """Make a case's inputs and reference.

    Raises BadCase for a variant, backend, dtype or size that the mechanism doesn't have and for inputs with NaN,
    Inf, no elements or gaps; Unavailable if the case can't run on this machine.
    """
    _check_case(mechanism, case)
    missing = registry.why_not(mechanism, case)
    if missing:
        raise Unavailable(f"{case.id}: {missing}")
    inputs = mechanism.make_inputs(case)
    for name, array in inputs.items():
        _check_input(case, name, array)
    reference = mechanism.reference(case, {name: array.copy() for name, array in inputs.items()})
    return Problem(mechanism, case, inputs, mechanism.outputs(case), reference)


def _check_case(mechanism: Mechanism, case: Case) -> None:
    if case.mechanism != mechanism.name:
        raise BadCase(f"{case.id} is a case of {case.mechanism!r}, not of {mechanism.name!r}")
    if case.variant not in mechanism.variants:
        raise BadCase(unknown_name(f"variant of {mechanism.name}", case.variant, mechanism.variants))
    if case.backend not in mechanism.variants[case.variant]:
        backends = mechanism.variants[case.variant]
        raise BadCase(unknown_name(f"backend of {mechanism.name}/{case.variant}", case.backend, backends))
    if case.dtype not in mechanism.dtypes:
        raise BadCase(unknown_name(f"dtype of {mechanism.name}", case.dtype, mechanism.dtypes))
    declared = [sizes.keys() for sizes in (*mechanism.test_sizes, *mechanism.bench_sizes)]
    given = dict(case.sizes)
    if given.keys() not in declared:
        needed = " or ".join(dict.fromkeys(", ".join(names) for names in declared))
        raise BadCase(f"{case.id}: sizes of {mechanism.name} are {needed}, got {', '.join(given) or 'none'}")
    for name, value in given.items():
        if isinstance(value, int) and value < 1:
            raise BadCase(f"{case.id}: size {name} is {value}, must be at least 1")


def _check_input(case: Case, name: str, array: np.ndarray) -> None:
    if not isinstance(array, np.ndarray):
        raise BadCase(f"{case.id}: input {name} is a {type(array).__name__}, not a NumPy array")
    if array.size == 0:
        raise BadCase(f"{case.id}: input {name} has no elements: shape {array.shape}")
    if not array.flags.c_contiguous:
        raise BadCase(f"{case.id}: input {name} is not C-contiguous: shape {array.shape}, strides {array.strides}")
    values = from_bf16(array) if array.dtype == NUMPY_TYPES["bf16"] else array
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        where = [int(i) for i in np.unravel_index(int(np.argmin(np.isfinite(values))), values.shape)]
        raise BadCase(f"{case.id}: input {name} is {values[tuple(where)]} at {where}; inputs must be finite")


@dataclass(frozen=True)
class Bound:
    """A case whose call is bound to its buffers and was found right. ``first_call_s`` is its very first call."""

    problem: Problem
    call: Callable[[], None]
    inputs: Arrays
    outputs: Arrays
    check: Check
    first_call_s: float


def bind_case(mechanism: Mechanism, case: Case, clock: Clock = SYSTEM_CLOCK) -> Bound:
    """Bind a case and check it, twice on poisoned outputs, so that a call that works only once is found too.

    Raises WrongResult with the worst index, the error and the limit; BadCase and Unavailable as load_problem.
    """
    problem = load_problem(mechanism, case)
    call, inputs, outputs = problem.bind()
    first_call_s = time_calls(call, 1, clock).wall_s
    problem.check(inputs, outputs)
    for name, array in outputs.items():
        if problem.specs[name].dtype.startswith(("i", "u")):
            array.view(np.uint8)[...] = _SECOND_POISON_BYTE
        else:
            poison(array)
    call()
    return Bound(problem, call, inputs, outputs, problem.check(inputs, outputs), first_call_s)


@contextmanager
def limited_threads(threads: int | None) -> Iterator[None]:
    """At most this many threads in the BLAS and OpenMP libraries that are loaded; None leaves them alone."""
    if threads is None:
        yield
        return
    with threadpoolctl.threadpool_limits(limits=threads):
        yield


class _FreshCall:
    """A side of a pair: builds fresh buffers for every block and remembers the last ones, to check them."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.last: tuple[Arrays, Arrays] | None = None

    def __call__(self) -> Callable[[], None]:
        call, *buffers = self.problem.bind()
        self.last = (buffers[0], buffers[1])
        return call

    def check_last(self) -> None:
        if self.last:
            self.problem.check(*self.last)


def measure_pair(
    mechanism: Mechanism,
    case_a: Case,
    case_b: Case,
    budget_s: float,
    rng: np.random.Generator,
    *,
    cache: str = "warm",
    clock: Clock = SYSTEM_CLOCK,
    probe: Probe | None = None,
    environment: Environment | None = None,
) -> tuple[Measurement, Measurement, list[float]]:
    """Time two cases against each other in double blocks; at least one, then as many as fit into ``budget_s``.

    The budget is wall seconds, inputs, references and checks included. Returns both measurements (per-call
    seconds) and a log(time b / time a) per block. They are of this one process: an interval over the blocks says
    nothing about other processes (``compare`` and the gate use several). Outputs are checked before the timing,
    and those of the last block after it. Raises WrongResult, BadCase, Unavailable.
    """
    if cache not in ("warm", "cold"):
        raise BadCase(unknown_name("cache state", cache, ("warm", "cold")))
    start_ns = clock.wall_ns()
    bound = bind_case(mechanism, case_a, clock), bind_case(mechanism, case_b, clock)
    sweep = CacheSweep(last_level_cache_bytes()) if cache == "cold" else None
    calls = (1, 1) if sweep else (calibrate(bound[0].call, clock)[0], calibrate(bound[1].call, clock)[0])
    sides = _FreshCall(bound[0].problem), _FreshCall(bound[1].problem)
    runner = BlockRunner(sides, calls, rng, sweep, clock, probe or SystemProbe())
    blocks: list[Block] = []
    while True:
        block_ns = clock.wall_ns()
        blocks.append(runner.run())
        now_ns = clock.wall_ns()
        if now_ns - start_ns + (now_ns - block_ns) > budget_s * 1e9:
            break
    for side in sides:
        side.check_last()
    state = sweep.state if sweep else "warm"
    a, b = (_measurement(bound[n], blocks, "AB"[n], calls[n], clock.name, state, environment) for n in range(2))
    return a, b, [block.log_ratio for block in blocks]


def _measurement(
    bound: Bound,
    blocks: list[Block],
    side: str,
    calls: int,
    timer: str,
    cache_state: str,
    environment: Environment | None,
) -> Measurement:
    samples = [sample for block in blocks for sample in block.of(side)]
    return Measurement(
        case=bound.problem.case,
        check=bound.check,
        cost=bound.problem.cost,
        samples_s=tuple(sample.wall_s for sample in samples),
        cpu_s=tuple(sample.cpu_s for sample in samples),
        first_call_s=bound.first_call_s,
        calls_per_sample=calls,
        timer=timer,
        cache_state=cache_state,
        environment=environment,
        disturbed=sum(block.repeated + block.kept for block in blocks),
    )
