"""Isolated cases: bound to fresh buffers, checked against float64, and only then timed, in pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import threadpoolctl

from flashperf.blocks import Block, BlockRunner, CacheSweep
from flashperf.disturbance import Probe
from flashperf.environment import last_level_cache_bytes
from flashperf.gpu.clock import DeviceClock, DeviceSweep, clock_for, probe_for
from flashperf.problem import CaseError, Problem, UnavailableError, WrongResult, load_problem
from flashperf.records import Arrays, Case, Check, Environment, Measurement, Mechanism
from flashperf.suggest import unknown_name
from flashperf.timers import SYSTEM_CLOCK, Clock, calibrate, time_calls

__all__ = [
    "Bound",
    "CaseError",
    "UnavailableError",
    "WrongResult",
    "bind_case",
    "limited_threads",
    "measure_pair",
]

MOST_SAMPLES = 2000  # of a pair in its budget: samples get longer rather than more, and a record stays small


@dataclass(frozen=True)
class Bound:
    """A case whose call is bound to its buffers and was found right.

    ``first_call_s`` is its very first call.
    """

    problem: Problem
    call: Callable[[], None]
    inputs: Arrays
    outputs: Arrays
    check: Check
    first_call_s: float


def bind_case(mechanism: Mechanism, case: Case, clock: Clock = SYSTEM_CLOCK) -> Bound:
    """Bind a case and check it, twice on poisoned outputs, so that a call that works only once is found too.

    Raises WrongResult with the worst index, the error and the limit; CaseError and UnavailableError as
    load_problem.
    """
    problem = load_problem(mechanism, case)
    call, inputs, outputs = problem.bind()
    first_call_s = _first_call_s(call, clock)
    problem.check(call, inputs, outputs)
    problem.poison(call, outputs, again=True)
    call()
    return Bound(problem, call, inputs, outputs, problem.check(call, inputs, outputs), first_call_s)


def _first_call_s(call: Callable[[], None], clock: Clock) -> float:
    """A device's clock also counts what the host does before the device has anything to do."""
    if isinstance(clock, DeviceClock):
        return clock.first_call_s(call)
    return time_calls(call, 1, clock).wall_s


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
        self.last: tuple[Callable[[], None], Arrays, Arrays] | None = None

    def __call__(self) -> Callable[[], None]:
        self.last = self.problem.bind()
        return self.last[0]

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
    clock: Clock | None = None,
    probe: Probe | None = None,
    environment: Environment | None = None,
) -> tuple[Measurement, Measurement, list[float]]:
    """Time two cases in double blocks: at least one, then as many as fit into ``budget_s``.

    The budget is wall seconds, inputs, references and checks included. Returns both measurements (per-call
    seconds) and a log(time b / time a) per block. They are of this one process: an interval over the blocks
    says nothing about other processes (``compare`` and the gate use several). Outputs are checked before
    the timing, and those of the last block after it. Cases that run on a GPU are timed by its events
    unless a clock is given. Raises WrongResult, CaseError, UnavailableError.
    """
    if cache not in ("warm", "cold"):
        raise CaseError(unknown_name("cache state", cache, ("warm", "cold")))
    clock = clock or clock_for(case_a.backend)
    start_ns = clock.wall_ns()
    bound = bind_case(mechanism, case_a, clock), bind_case(mechanism, case_b, clock)
    sweep = _sweep(clock) if cache == "cold" else None
    calls = (1, 1) if sweep else _calls_per_sample(bound, clock, budget_s / MOST_SAMPLES)
    sides = _FreshCall(bound[0].problem), _FreshCall(bound[1].problem)
    runner = BlockRunner(sides, calls, rng, sweep, clock, probe or probe_for(clock))
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
    a, b = (
        _measurement(bound[n], blocks, "AB"[n], calls[n], clock.name, state, environment) for n in range(2)
    )
    return a, b, [block.log_ratio for block in blocks]


def _sweep(clock: Clock) -> CacheSweep | DeviceSweep:
    """What empties the caches of the machine, or of the device that the clock times."""
    return (
        DeviceSweep(clock.device) if isinstance(clock, DeviceClock) else CacheSweep(last_level_cache_bytes())
    )


def _calls_per_sample(bound: tuple[Bound, Bound], clock: Clock, least_s: float) -> tuple[int, int]:
    """Calibrated for each side; one number for both if they are the same case."""
    a, b = (calibrate(side.call, clock, least_s)[0] for side in bound)
    return (a, a) if bound[0].problem.case == bound[1].problem.case else (a, b)


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
        details=dict(getattr(bound.call, "details", {})),
    )
