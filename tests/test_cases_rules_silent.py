"""Rules of the diagnosis say nothing where what they rest on was not seen."""

from __future__ import annotations

from dataclasses import replace

import pytest
from planted_cases import PLANTED, case, pair, path, point

from flashperf.cases.diagnosis import Diagnosis, diagnose
from flashperf.cases.measured import CaseMeasured, PairMeasured, PointMeasured


def without(measured: CaseMeasured, **facts: float) -> CaseMeasured:
    """The same case, with other counts for the diagnosed path at every point."""

    def changed(pair: PairMeasured) -> PairMeasured:
        return replace(pair, other=replace(pair.other, facts={**pair.other.facts, **facts}))

    points = [
        replace(point, pairs={name: changed(pair) for name, pair in point.pairs.items()})
        for point in measured.points
    ]
    return replace(measured, points=points)


@pytest.mark.parametrize(
    "mechanism, facts",
    [
        ("more threads than cores", {"threads": 4.0}),
        ("transfer", {"copied_bytes": 0.0}),
        ("recompilation", {"compilations": 0.0}),
        ("cost of observing", {"observed": 0.0}),
        ("useless work", {"work": 1e6}),
        ("dispatch count", {"dispatches": 120.0}),
        ("casts", {"casts": 0.0}),
        ("no hardware path", {"operand_bits": 32.0}),
    ],
)
def test_a_mechanism_is_not_named_where_its_count_shows_nothing(
    mechanism: str, facts: dict[str, float]
) -> None:
    found = diagnose(without(PLANTED[mechanism], **facts))
    assert mechanism not in dict(found.candidates)
    assert mechanism not in found.mechanism


def test_of_two_that_fit_the_nearer_one_is_named_if_it_is_nearer_by_more_than_a_tenth() -> None:
    def with_copy(copy_s: float) -> Diagnosis:
        facts = {"copied_bytes": 16e6}
        measured = pair(path(1e-3), path(3e-3, facts, {"copy": copy_s, "quantise": 2e-3}))
        return diagnose(case(point(1, measured)))

    assert with_copy(2.15e-3).mechanism == "quantising or transfer"
    assert with_copy(2.4e-3).mechanism == "quantising"


def test_few_threads_that_are_slower_than_as_many_as_cores_are_not_too_many() -> None:
    def at(count: float, time_s: float) -> PointMeasured:
        facts = {"threads": count, "cores": 4.0}
        return point(count, pair(path(5e-6, {"threads": 1.0, "cores": 4.0}), path(time_s, facts)))

    assert "more threads than cores" not in dict(diagnose(case(at(2, 90e-6), at(4, 6e-6))).candidates)


def test_what_is_observed_on_both_sides_is_no_cost_of_one() -> None:
    def at(n: float) -> PointMeasured:
        seen = {"observed": 2.0 * n}
        return point(n, pair(path(1e-6 * n, seen), path(5e-6 * n, seen)))

    assert "cost of observing" not in dict(diagnose(case(at(60), at(180), at(540), headline=1)).candidates)
