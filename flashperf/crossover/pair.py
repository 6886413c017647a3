"""The worker side of a crossover: two variants, or two callables, at whatever size is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from flashperf import registry
from flashperf.blocks import Block, BlockRunner
from flashperf.comparing import transport
from flashperf.comparing.pair import Pair, PairSpec, Prepared, set_torch_threads
from flashperf.crossover.axes import Axis, Subject, case_at
from flashperf.disturbance import SystemProbe
from flashperf.errors import UserError
from flashperf.measure import bind_case
from flashperf.problem import Problem
from flashperf.records import Case, Check, Mechanism
from flashperf.store import to_json
from flashperf.timers import calibrate

#: Sizes that stay bound; the blocks of a refinement go through seven of them in random order.
KEPT_SIZES = 8
_PASSED = Check(True, 0.0, 0.0, 0.0, (), 0.0, "checked in another process")
_CHECKED_ELSEWHERE = Prepared((_PASSED, _PASSED), (0.0, 0.0), (1, 1), "warm", "of another process")


class Runner(Protocol):
    """Anything that times a pair at one size."""

    def block(self, seed: int) -> Block:
        """One double block."""


class Pairs:
    """Keeps the last sizes bound, so that returning to one costs nothing."""

    def __init__(self, make: Callable[[int, bool], Runner]) -> None:
        self._make = make
        self._bound: dict[int, Runner] = {}

    def prepare_size(self, size: int, check: bool) -> None:
        """Bind the pair at a size; checked first where ``check`` says so. Raises WrongResult."""
        if size in self._bound:
            self._bound[size] = self._bound.pop(size)  # the last used, so the last to go
            return
        if len(self._bound) == KEPT_SIZES:
            self._bound.pop(next(iter(self._bound)))
        self._bound[size] = self._make(size, check)

    def block_at(self, size: int, seed: int) -> dict[str, Any]:
        """One double block at a size that was prepared."""
        return to_json(self._bound[size].block(seed))


class MechanismPairs(Pairs):
    """Two variants of a mechanism."""

    def __init__(self, subject: Mapping[str, Any]) -> None:
        """``subject`` is a Subject as a mapping."""
        axis = Axis(subject["axis"]["name"], tuple(subject["axis"]["keys"]))
        self.subject = Subject(**{**subject, "axis": axis})
        self.mechanism = registry.mechanism(self.subject.mechanism)
        super().__init__(self._bind)

    def _bind(self, size: int, check: bool) -> Runner:
        sides = [self._side(variant, size, check) for variant in (self.subject.a, self.subject.b)]
        calls = [calibrate(side.bind()[0])[0] for side in sides]
        build = (lambda: sides[0].bind()[0], lambda: sides[1].bind()[0])
        runner = BlockRunner(build, (calls[0], calls[1]), np.random.default_rng(), probe=SystemProbe())
        return _Seeded(runner)

    def _side(self, variant: str, size: int, check: bool) -> Problem:
        case = case_at(self.mechanism, variant, self.subject, size)
        return bind_case(self.mechanism, case).problem if check else _unchecked(self.mechanism, case)


def _unchecked(mechanism: Mechanism, case: Case) -> Problem:
    """A problem without its reference: another process checks the same inputs."""
    return Problem(mechanism, case, mechanism.make_inputs(case), mechanism.outputs(case), {})


class _Seeded:
    """A BlockRunner whose order of each block is decided by a seed."""

    def __init__(self, runner: BlockRunner) -> None:
        self._runner = runner

    def block(self, seed: int) -> Block:
        self._runner.rng = np.random.default_rng(seed)
        return self._runner.run()


class InputsAt:
    """The inputs of a user's pair at one size: ``inputs(size)`` or ``inputs(size, seed)``."""

    def __init__(self, inputs: Callable[..., Any], size: int, takes_seed: bool) -> None:
        self._inputs, self._size, self._takes_seed = inputs, size, takes_seed

    def __call__(self, seed: int) -> Any:
        try:
            return self._inputs(self._size, seed) if self._takes_seed else self._inputs(self._size)
        except Exception as error:
            raise UserError(f"inputs raised {type(error).__name__}: {error}") from error


class CallablePairs(Pairs):
    """Two callables of a user's, as ``flashperf.crossover`` takes them."""

    def __init__(self, payload: str, seed: int, takes_seed: bool, threads: int | None = 1) -> None:
        """``payload`` is a file that holds what ``transport.dumps`` made of a PairSpec."""
        self._spec: PairSpec = transport.loads(Path(payload).read_bytes())
        self._seed, self._takes_seed = seed, takes_seed
        set_torch_threads(threads)
        super().__init__(self._bind)

    def _bind(self, size: int, check: bool) -> Runner:
        try:
            pair = Pair(
                replace(self._spec, inputs=InputsAt(self._spec.inputs, size, self._takes_seed)), self._seed
            )
            pair.prepare(None if check else _CHECKED_ELSEWHERE)
        except UserError as error:
            raise UserError(f"at size {size}: {error}", error.exit_code) from error
        return pair
