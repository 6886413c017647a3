"""Cold caches: what is flushed, which arrays those are, and what is said of how cold it was."""

from __future__ import annotations

import dataclasses
import platform

import numpy as np
import pytest
from roofs_samples import roofs, run

from flashperf import native, registry
from flashperf.dtypes import aligned_empty
from flashperf.problem import Problem
from flashperf.report.rooflines import notes
from flashperf.roofs.cold import ColdCaches, bound_arrays
from flashperf.roofs.cold_check import ColdCheck, left_in_caches
from flashperf.roofs.subject import bind_stream, run_once

on_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="only x86-64 lets a program flush a line")


@on_x86
@pytest.mark.parametrize("n", [1, 63, 64, 65, 4096, 100_001])
def test_flushing_changes_no_byte(n: int) -> None:
    data, done = np.arange(n + 3, dtype=np.uint8)[3:], np.zeros(1, np.int64)
    before = data.copy()
    native.prepare("flush_lines", data, done)()
    assert done[0] == 1
    assert (data == before).all()


@on_x86
def test_what_was_emptied_comes_slower_than_what_was_not() -> None:
    """256 KiB of loads: from L2, and after its lines were flushed; the best of five each."""
    part = aligned_empty((64 << 10,), "f32")
    part.fill(1.0)
    call, caches = bind_stream(native.library(), "load", part, 1)[0], ColdCaches()
    assert caches.state == "cold"
    warm, cold = [], []
    for _ in range(5):
        call()
        warm.append(run_once([call]))
        caches.empty([part])
        cold.append(run_once([call]))
    assert min(cold) > 1.5 * min(warm)


def test_arrays_that_a_mechanism_makes_for_itself_are_found() -> None:
    """The split softmax keeps its intermediate results in arrays of its own."""
    mechanism = registry.mechanism("fusion")
    case = next(c for c in registry.cases(mechanism, "test", ["cpu"]) if c.variant == "split")
    problem = Problem(mechanism, case, mechanism.make_inputs(case), mechanism.outputs(case), {})
    with bound_arrays() as bound:
        _, inputs, outputs = problem.bind()
    given = {id(array) for array in (*inputs.values(), *outputs.values())}
    assert given & {id(array) for array in bound}
    assert {id(array) for array in bound} - given
    before = len(bound)
    problem.bind()
    assert len(bound) == before


@pytest.mark.parametrize(
    ("rates", "said"),
    [
        (
            (8e9, 8.1e9, 8.2e9),
            "came at 81 % [79–84] of the DRAM load roof: no sign that they still held a part",
        ),
        ((20e9, 20.1e9, 20.2e9), "at 201 % [199–204] of the DRAM load roof: they still held a part"),
    ],
)
def test_how_cold_it_was_is_said_as_measured(rates: tuple[float, ...], said: str) -> None:
    assert said in left_in_caches(ColdCheck(4 << 20, rates), roofs())
    assert any(
        said in note for note in notes(dataclasses.replace(run(), cold_check=ColdCheck(4 << 20, rates)))
    )


def test_without_a_measured_roof_or_check_nothing_is_claimed() -> None:
    bare = dataclasses.replace(roofs(), ceilings=())
    assert left_in_caches(ColdCheck(4 << 20, (1e9, 1e9)), bare) == "what they still held was not measured"
    assert left_in_caches(None, roofs()) == "what they still held was not measured"
