"""``flashperf.compare(a, b, inputs=...)``: is b faster than a, and is it right? For any two callables."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flashperf import environment
from flashperf.blocks import Block
from flashperf.comparing import transport
from flashperf.comparing.pair import PairSpec, Prepared
from flashperf.comparing.pair_run import PairRun, run_here, run_in_processes
from flashperf.comparing.text import INTERPRETED
from flashperf.errors import UserError
from flashperf.records import Check, Comparison, Environment, Interval, Placement
from flashperf.roofline import Roof, place
from flashperf.stats import compare_log_ratios, ratio_interval, t_interval, trimmed_mean

PROCESSES = 8
#: Identical code differs between processes by where its buffers and code happen to lie: runs of one process
#: gave totals from 2.1x to 2.5x for the same thing. An interval from a single process is widened by this
#: factor on both sides, so only an effect well beyond that gets a verdict.
ONE_PROCESS_FACTOR = 1.25

#: Work of one call: one number for both sides, or one for each.
Work = float | tuple[float, float] | None


@dataclass(frozen=True, repr=False)
class CompareResult:
    """The judgement on b against a; ``print`` it.

    comparison: time of b / time of a with its interval and verdict. checks: of a and of b, against the
    reference. time_s: seconds per call of each, an interval over processes (over blocks from a single one).
    placements: of each, where costs were given, else None. blocks: every sample, by process.
    """

    names: tuple[str, str]
    comparison: Comparison
    checks: tuple[Check, Check]
    time_s: tuple[Interval, Interval]
    placements: tuple[Placement, Placement] | None
    prepared: Prepared
    blocks: tuple[tuple[Block, ...], ...]
    start_s: float
    measured_s: float
    environment: Environment
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """Of b: "faster", "slower", "equivalent" or "unresolved"."""
        return self.comparison.verdict

    @property
    def error(self) -> float:
        """The largest absolute error of b against the reference."""
        return self.checks[1].max_abs_error

    @property
    def placement(self) -> Placement | None:
        """Where b lies: FLOP/s, bytes/s and, with a roof, the fraction of it; None without costs."""
        return self.placements[1] if self.placements else None

    def __str__(self) -> str:
        from flashperf.comparing.text import lines

        return "\n".join(lines(self))

    __repr__ = __str__


def compare(
    a: Callable[..., Any],
    b: Callable[..., Any],
    inputs: Any = None,
    *,
    reference: Callable[..., Any] | None = None,
    flops: Work = None,
    bytes: Work = None,
    roof: Roof | None = None,
    budget_s: float = 5.0,
    margin: float = 0.05,
    rtol: float | None = None,
    atol: float | None = None,
    outputs: Sequence[str | int] = (),
    cache: str = "warm",
    threads: int | None = 1,
    processes: int = PROCESSES,
    seed: int = 0,
) -> CompareResult:
    """Judge ``b`` against ``a``: both checked, then timed in pairs in several fresh processes.

    a, b:      callables of NumPy, torch, CuPy or Triton code; forward, or forward and backward
    inputs:    arrays as a tuple or list (positional), a mapping (by name) or one array; or a function of an
               integer seed that makes them, called anew in every process
    reference: called with the inputs in float64, what both must agree with; without one, ``a`` on float64
    inputs
               (a torch module as its ``double()`` copy); if that fails, ``a`` as it is, and the result says
               so
    flops, bytes: work of one call, or a pair (a's, b's); adds rates and, with ``roof``, the place under it
    budget_s:  wall seconds for timing; starting the processes (importing torch) and checking come on top
    margin:    within this fraction of 1 the two are "equivalent"
    rtol, atol: an element passes if its error is at most atol + rtol |reference|. By default, for floating
               results, a limit by their type (pair.ROUNDOFFS) or twice the error of ``a``, if that is larger
    outputs:   names or positions of the inputs that a call writes (out-parameters); they are poisoned
    before the
               call and compared after it. All other inputs must stay as they are
    cache:     "warm", or "cold": the caches are emptied before every sample
    threads:   for BLAS, OpenMP and torch; None leaves their defaults
    processes: how many; 1 measures in this process

    Every process checks both; of inputs above 8 MiB that are the same in all, the first two processes do.

    Returned arrays need storage other than the inputs'; earlier results are poisoned, so that one which
    isn't written shows. Gradients of inputs that require them are results too. On a GPU a call ends when
    the device has finished. Callables, inputs and reference must be fit to be sent to other processes:
    functions of a module or script, lambdas, closures and functions typed into a session are. Where they
    are not, this process measures alone, its interval is widened by ONE_PROCESS_FACTOR on both sides, and
    the notes say so.

    Raises WrongResult if a or b is wrong (it is then not timed), and flashperf.errors.UserError for bad
    input.
    """
    transport.stop_if_loading()
    names = _names(a, b)
    named = tuple(str(name) for name in outputs)
    spec = PairSpec(a, b, inputs, reference, named, rtol, atol, names, cache)
    _check_arguments(spec, budget_s, margin, processes)
    captured = environment.capture(threads or environment.usable_cores())
    notes: list[str] = []
    if any(map(_is_interpreted, (a, b))):
        notes.append(INTERPRETED)
    payload = None
    if processes > 1:
        try:
            payload = transport.dumps(spec)
        except transport.TransportError as error:
            notes.append(f"measured in this process only: other processes can't be given the pair ({error})")
    if payload is None:
        run = run_here(spec, budget_s, threads, seed)
    else:
        run = run_in_processes(payload, processes, budget_s, threads, seed, not callable(inputs))
    work = (_both(flops), _both(bytes)) if flops or bytes else None
    return _result(spec, run, margin, work, roof, captured, tuple(notes))


def _is_interpreted(call: Callable[..., Any]) -> bool:
    """Whether a function's module holds kernels that Triton interprets."""
    held = getattr(call, "__globals__", {}).values()
    return any(type(value).__module__ == "triton.runtime.interpreter" for value in held)


def _names(a: Any, b: Any) -> tuple[str, str]:
    """What the two are called in messages; "a" and "b" where they have no name of their own."""
    name_a, name_b = (getattr(f, "__name__", type(f).__name__) for f in (a, b))
    if name_a == name_b:
        return "a", "b"
    return "a" if name_a == "<lambda>" else name_a, "b" if name_b == "<lambda>" else name_b


def _check_arguments(spec: PairSpec, budget_s: float, margin: float, processes: int) -> None:
    for what, value in (("a", spec.a), ("b", spec.b)):
        if not callable(value):
            raise UserError(f"{what} is a {type(value).__name__}; compare takes two callables")
    if spec.cache not in ("warm", "cold"):
        raise UserError(f"cache is {spec.cache!r}, must be 'warm' or 'cold'")
    if not budget_s > 0:
        raise UserError(f"budget_s is {budget_s}, must be positive")
    if not 0 <= margin < 1:
        raise UserError(f"margin is {margin}, a fraction such as 0.05")
    if processes < 1:
        raise UserError(f"processes is {processes}, must be at least 1")


def _both(work: Work) -> tuple[float, float]:
    return work if isinstance(work, tuple) else (work or 0, work or 0)


def _result(
    spec: PairSpec,
    run: PairRun,
    margin: float,
    work: tuple[tuple[float, float], tuple[float, float]] | None,
    roof: Roof | None,
    captured: Environment,
    notes: tuple[str, ...],
) -> CompareResult:
    alone = len(run.blocks) == 1
    ratios = [[block.log_ratio for block in own] for own in run.blocks]
    if alone:
        comparison = one_process_comparison(ratios[0], margin)
    else:
        counted = sum(len(own) for own in run.blocks)
        comparison = compare_log_ratios([trimmed_mean(own) for own in ratios], margin, blocks=counted)
    times: list[Interval] = []
    for side in "AB":
        logs = [[math.log(s.wall_s) for block in own for s in block.of(side)] for own in run.blocks]
        times.append(ratio_interval(logs[0] if alone else [float(np.mean(own)) for own in logs]))
    placements = None
    if work:
        a, b = (place(int(work[0][n]), int(work[1][n]), times[n].value, roof) for n in (0, 1))
        placements = (a, b)
    return CompareResult(
        names=spec.names,
        comparison=comparison,
        checks=run.prepared.checks,
        time_s=(times[0], times[1]),
        placements=placements,
        prepared=run.prepared,
        blocks=tuple(tuple(own) for own in run.blocks),
        start_s=run.start_s,
        measured_s=run.measured_s,
        environment=captured,
        notes=notes,
    )


def one_process_comparison(block_log_ratios: Sequence[float], margin: float) -> Comparison:
    """The verdict from blocks of a single process: a t interval over blocks, widened by ONE_PROCESS_FACTOR.

    Never "equivalent": how much another process would differ is not known.
    """
    inner = t_interval(block_log_ratios)
    extra = math.log(ONE_PROCESS_FACTOR)
    low, value, high = inner.low - extra, inner.value, inner.high + extra
    ratio = Interval(math.exp(value), math.exp(low), math.exp(high), inner.confidence)
    verdict = "slower" if ratio.low > 1 else "faster" if ratio.high < 1 else "unresolved"
    reason = (
        f"from a single process; its interval is widened by a factor of {ONE_PROCESS_FACTOR} on both sides"
    )
    return Comparison(ratio, verdict, len(block_log_ratios), 1, margin, reason)
