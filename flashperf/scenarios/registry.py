"""The scenarios by name."""

from __future__ import annotations

import functools

from flashperf.errors import UserError
from flashperf.scenarios.definition import Scenario
from flashperf.suggest import unknown_name


@functools.cache
def all_scenarios() -> tuple[Scenario, ...]:
    """Every scenario."""
    from flashperf.scenarios import compiling, parallelism, pinning, warmup

    return pinning.SCENARIO, warmup.SCENARIO, compiling.SCENARIO, parallelism.SCENARIO


def scenario_named(name: str) -> Scenario:
    """A scenario by its name. Raises UserError with the nearest ones."""
    for scenario in all_scenarios():
        if name == scenario.name:
            return scenario
    raise UserError(unknown_name("scenario", name, [scenario.name for scenario in all_scenarios()]))
