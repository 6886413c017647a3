"""Where one variant overtakes another: ``flashperf.crossover(a, b, inputs)`` and ``crossover_of`` a mechanism."""

from __future__ import annotations

import dataclasses
import inspect
import keyword
import math
import operator
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from flashperf import registry
from flashperf.comparing import transport
from flashperf.comparing.pair import PairSpec
from flashperf.comparing.pair_run import worker_environment
from flashperf.crossover.axes import AXES, Axis, Subject, axis_of, base_sizes, check_pair
from flashperf.crossover.driver import WORKERS, run
from flashperf.crossover.finder import Crossing, Finding, find
from flashperf.crossover.journal import Plan, replay
from flashperf.crossover.result import CrossoverResult
from flashperf.errors import UserError
from flashperf.progress import ProgressSink

__all__ = [
    "AXES",
    "Axis",
    "Crossing",
    "CrossoverResult",
    "Finding",
    "Plan",
    "Subject",
    "axis_of",
    "crossover",
    "crossover_of",
    "find",
    "replay",
    "subject_of",
]

BUDGET_S = 60.0
LEAST_WORKERS = 4
#: Floating point, in which sizes are spaced, holds every whole number up to here.
LARGEST = 2**53


def crossover(
    a: Callable[..., Any],
    b: Callable[..., Any],
    inputs: Callable[..., Any],
    *,
    axis: str = "n",
    low: int = 1,
    high: int = 4096,
    reference: Callable[..., Any] | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    outputs: tuple[str | int, ...] = (),
    budget_s: float = BUDGET_S,
    threads: int | None = 1,
    processes: int = WORKERS,
    seed: int = 0,
    record: str | Path | None = None,
) -> CrossoverResult:
    """From which size on is ``b`` faster than ``a``, or the other way round? For any two callables.

    a, b:      as ``flashperf.compare`` takes them; both are checked at every size before they are timed there
    inputs:    ``inputs(size)`` or ``inputs(size, seed)`` makes the inputs of a size, as ``compare`` takes them
    axis:      what the size is called in the answer and in the rule
    low, high: the sizes between which to look, both included
    reference, rtol, atol, outputs, threads, seed: as in ``compare``
    budget_s:  wall seconds after the processes have started; where they don't suffice, the range is cut or the
               crossing only bracketed, and the notes say so
    processes: at least 4; 8 is what the method was tested with
    record:    a new file that keeps every block; ``flashperf crossover --from FILE`` reads it back

    Raises flashperf.errors.UserError for bad input, and, with the size, if a or b is wrong there or raises.
    """
    transport.stop_if_loading()
    low, high = _check_range(low, high, budget_s, processes)
    if not (isinstance(axis, str) and axis.isidentifier() and not keyword.iskeyword(axis)):
        raise UserError(
            f"axis is the name of a variable in the rule for your code, such as rows, not {axis!r}"
        )
    for what, value in (("a", a), ("b", b), ("inputs", inputs)):
        if not callable(value):
            raise UserError(
                f"{what} is a {type(value).__name__}; crossover takes functions for a, b and inputs"
            )
    name_a, name_b = _names(a, b)
    named = tuple(str(name) for name in outputs)
    spec = PairSpec(a, b, inputs, reference, named, rtol, atol, (name_a, name_b))
    plan = Plan((name_a, name_b), axis, f"{name_a} and {name_b}", low, high)
    with tempfile.NamedTemporaryFile(prefix="flashperf-") as file:
        file.write(transport.dumps(spec))
        file.flush()
        options = {
            "payload": file.name,
            "seed": seed,
            "takes_seed": _takes_two(inputs),
            "threads": threads,
        }
        return run(
            plan,
            "flashperf.crossover.pair:CallablePairs",
            options,
            budget_s=budget_s,
            seed=seed,
            workers=processes,
            record=Path(record) if record else None,
            variables=worker_environment(threads),
        )


def _names(a: Any, b: Any) -> tuple[str, str]:
    """What the two are called; "a" and "b" where they have no names of their own."""
    name_a, name_b = (getattr(f, "__name__", type(f).__name__) for f in (a, b))
    if name_a == name_b or "<lambda>" in (name_a, name_b):
        return "a", "b"
    return name_a, name_b


def _takes_two(inputs: Callable[..., Any]) -> bool:
    """Whether a function of the size also takes the seed."""
    try:
        parameters = inspect.signature(inputs).parameters.values()
    except (TypeError, ValueError):
        return False
    needed = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len([p for p in needed if p.default is p.empty]) >= 2


def _check_range(low: int, high: int, budget_s: float, processes: int) -> tuple[int, int]:
    """The range as Python's own integers."""
    wrong = f"a range is two whole numbers, 1 or more, the first smaller: not {low}:{high}"
    if isinstance(low, bool) or isinstance(high, bool):
        raise UserError(wrong)
    try:
        first, last = operator.index(low), operator.index(high)
    except TypeError:
        raise UserError(wrong) from None
    if not 1 <= first < last:
        raise UserError(wrong)
    if last > LARGEST:
        raise UserError(f"a size is at most {LARGEST:,}, not {last:,}")
    if isinstance(budget_s, str) or not 0 < budget_s < math.inf:
        raise UserError(f"the budget is {budget_s} s, must be positive")
    if not isinstance(processes, int) or processes < LEAST_WORKERS:
        raise UserError(f"an interval needs {LEAST_WORKERS} processes or more, not {processes}")
    return first, last


def crossover_of(
    mechanism: str,
    *,
    axis: str | None = None,
    low: int | None = None,
    high: int | None = None,
    between: tuple[str, str] | None = None,
    sizes: Mapping[str, int | str] | None = None,
    backend: str = "cpu",
    dtype: str | None = None,
    budget_s: float = BUDGET_S,
    processes: int = WORKERS,
    seed: int = 0,
    record: Path | None = None,
    progress: ProgressSink | None = None,
) -> CrossoverResult:
    """The crossover of two variants of a mechanism (default: its standard and its flash variant) along an axis.

    ``axis`` is an entry of AXES or a size of the mechanism; ``sizes`` fixes others than the first bench case does.
    Without ``low`` the range begins at the least size that there is, without ``high`` it ends at the largest one up to
    what is usual for the axis.
    Raises UserError for anything that the mechanism doesn't have or that can't run here, with what there is.
    """
    found = registry.mechanism(mechanism)
    subject = subject_of(
        mechanism, axis=axis, between=between, sizes=sizes, backend=backend, dtype=dtype, seed=seed
    )
    first, end = _range(subject, low, high)
    _check_range(first, end, budget_s, processes)
    for variant in (subject.a, subject.b):
        for size in (first, end):
            why_not = registry.why_not(found, _case(subject, variant, size))
            if why_not:
                raise UserError(f"{subject.mechanism}/{variant} can't run here: {why_not}")
    plan = Plan(
        (subject.a, subject.b), subject.axis.name, str(subject), first, end,
        subject.mechanism, subject.backend, subject.dtype, subject.fixed,
    )  # fmt: skip
    return run(
        plan,
        "flashperf.crossover.pair:MechanismPairs",
        {"subject": dataclasses.asdict(subject)},
        budget_s=budget_s,
        seed=seed,
        workers=processes,
        record=record,
        progress=progress,
    )


def _range(subject: Subject, low: int | None, high: int | None) -> tuple[int, int]:
    """A range as it is given; what isn't given is the least, or largest, size that both variants support."""

    def exists(size: int) -> bool:
        found = registry.mechanism(subject.mechanism)
        return not any(registry.why_not(found, _case(subject, side, size)) for side in (subject.a, subject.b))

    usual = subject.axis.default_high
    first = low if low is not None else next((n for n in range(1, usual) if exists(n)), 1)
    end = high if high is not None else next((n for n in range(usual, first, -1) if exists(n)), usual)
    return first, end


def _case(subject: Subject, variant: str, value: int) -> Any:
    from flashperf.crossover.axes import case_at

    return case_at(registry.mechanism(subject.mechanism), variant, subject, value)


def subject_of(
    mechanism: str,
    *,
    axis: str | None = None,
    between: tuple[str, str] | None = None,
    sizes: Mapping[str, int | str] | None = None,
    backend: str = "cpu",
    dtype: str | None = None,
    seed: int = 0,
) -> Subject:
    """What crosses, with everything named and checked. Raises UserError as ``crossover_of``."""
    found = registry.mechanism(mechanism)
    a, b = between or (found.standard, found.flash)
    check_pair(found, a, b, backend)
    if dtype is not None and dtype not in found.dtypes:
        from flashperf.suggest import unknown_name

        raise UserError(unknown_name(f"dtype of {mechanism}", dtype, found.dtypes))
    chosen = axis_of(found, axis)
    return Subject(mechanism, a, b, backend, dtype or found.dtypes[0], base_sizes(found, sizes), chosen, seed)
