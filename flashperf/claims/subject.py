"""A pair of mechanism variants as a worker process holds them: checked, then timed in double blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from flashperf import registry
from flashperf.blocks import BlockRunner
from flashperf.disturbance import SystemProbe
from flashperf.measure import bind_case
from flashperf.problem import Problem
from flashperf.records import Case
from flashperf.store import to_json
from flashperf.timers import calibrate

_LEAST_SAMPLE_S = 1e-3


class VariantPair:
    """One pair; ``prepare`` comes first."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._runner: BlockRunner | None = None

    def prepare(
        self, mechanism: str, base: str, other: str, sizes: Mapping[str, int | str], dtype: str
    ) -> list[dict[str, Any]]:
        """Bind and check both; their checks. Raises WrongResult, CaseError, UnavailableError."""
        found = registry.mechanism(mechanism)
        case = Case.of(mechanism, base, "cpu", dtype, sizes or found.bench_sizes[0], self.seed)
        bound = [bind_case(found, case), bind_case(found, case.with_variant(other))]
        calls = [calibrate(side.call, least_s=_LEAST_SAMPLE_S)[0] for side in bound]
        build = [_builder(side.problem) for side in bound]
        self._runner = BlockRunner(
            (build[0], build[1]), (calls[0], calls[1]), np.random.default_rng(), probe=SystemProbe()
        )
        return [to_json(side.check) for side in bound]

    def block(self, seed: int) -> dict[str, Any]:
        """One double block; A is the base."""
        assert self._runner is not None
        self._runner.rng = np.random.default_rng(seed)
        return to_json(self._runner.run())


def _builder(problem: Problem) -> Callable[[], Callable[[], None]]:
    return lambda: problem.bind()[0]
