"""Dispatch, transfer, overlap and allocation: what their contract tests don't see."""

from __future__ import annotations

import itertools
import os
import resource
import threading
from pathlib import Path

import numpy as np
import pytest

from flashperf import native, registry
from flashperf.beside import overlap_fraction, run_beside
from flashperf.dtypes import aligned_empty
from flashperf.measure import bind_case
from flashperf.mechanisms import allocation
from flashperf.mechanisms._pool import FirstFit, PoolFullError, churn
from flashperf.mechanisms.graph import fit_line
from flashperf.records import Case


def test_a_line_is_recovered_exactly_and_its_residual_is_what_is_left() -> None:
    counts = (8, 16, 32, 64)
    fit = fit_line(counts, [3e-6 + 2e-7 * n for n in counts])
    assert fit.a_s == pytest.approx(3e-6)
    assert fit.b_s == pytest.approx(2e-7)
    assert fit.residual_s < 1e-15
    bent = fit_line(counts, [1e-9 * n**2 for n in counts])
    assert bent.residual_s > 1e-8
    with pytest.raises(ValueError, match="three different counts"):
        fit_line((4, 4, 8), [1, 1, 2])


@pytest.mark.parametrize(
    ("copies", "computed", "fraction"),
    [
        ([(0, 10)], [(0, 10)], 1.0),
        ([(0, 10)], [(10, 20)], 0.0),
        ([(0, 10)], [(5, 20)], 0.5),
        ([(0, 10), (20, 30)], [(5, 25)], 0.5),
        ([(0, 10)], [(1, 2), (4, 6)], 0.3),
        ([(0, 10)], [], 0.0),
    ],
)
def test_overlap_is_the_intersection_over_the_time_in_copies(
    copies: list[tuple[int, int]], computed: list[tuple[int, int]], fraction: float
) -> None:
    assert overlap_fraction(copies, computed) == pytest.approx(fraction)


def test_overlap_of_no_copies_is_refused() -> None:
    with pytest.raises(ValueError, match="no time was spent in copies"):
        overlap_fraction([], [(0, 1)])


class ScriptedThread:
    """Says what it was asked, in order."""

    def __init__(self, said: list[str]) -> None:
        self.said = said

    def submit(self, copies: str) -> None:
        self.said.append(f"begin {copies}")

    def wait(self) -> None:
        self.said.append("wait")

    def span_ns(self) -> tuple[int, int]:
        return 1, 2


def test_copies_are_waited_for_before_and_begun_one_segment_ahead() -> None:
    said: list[str] = []
    parts = [("embed", None), ("layer 0", "copies 0"), ("layer 1", "copies 1"), ("head", None)]
    spans = run_beside(ScriptedThread(said), parts, said.append)
    assert said == [
        *("begin copies 0", "embed", "wait", "begin copies 1", "layer 0"),
        *("wait", "layer 1", "head", "wait"),
    ]
    assert spans == [(1, 2), (1, 2)]


def test_a_failing_segment_still_waits_for_the_thread() -> None:
    said: list[str] = []

    def fail(segment: str) -> None:
        raise ArithmeticError(segment)

    with pytest.raises(ArithmeticError):
        run_beside(ScriptedThread(said), [("a", None), ("b", "copies")], fail)
    assert said == ["begin copies", "wait"]


def test_the_background_thread_runs_sequences_to_their_end() -> None:
    thread, before = native.Background(), threading.active_count()
    x, y = aligned_empty((1000,), "f32"), aligned_empty((1000,), "f32")
    x[...] = 3
    for value in range(5):
        y[...] = value
        thread.submit(native.Sequence([native.prepare("copy_f32", x, y)]))
        thread.wait()
        np.testing.assert_array_equal(y, x)
    begin, end = thread.span_ns()
    assert end >= begin > 0
    assert threading.active_count() == before, "it is no Python thread"


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="threads are bound to cores on Linux alone")
def test_the_background_thread_keeps_off_its_callers_core() -> None:
    cores, tasks = os.sched_getaffinity(0), Path("/proc/self/task")
    if len(cores) < 2:
        pytest.skip("one core only: there is no other to go to")
    before = {task.name for task in tasks.iterdir()}
    thread = native.Background()
    (made,) = {task.name for task in tasks.iterdir()} - before
    try:
        for core in sorted(cores)[:2]:
            os.sched_setaffinity(0, {core})
            thread.submit(native.Sequence([]))
            assert os.sched_getaffinity(int(made)) == cores - {core}
    finally:
        os.sched_setaffinity(0, cores)


def test_fresh_pages_are_zeros_and_fault_again() -> None:
    case = Case.of("allocation", "fresh", "cpu", "f32", {"n": 1 << 16, "blocks": 2})
    bound = bind_case(registry.mechanism("allocation"), case)
    bound.call()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    bound.call()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before >= 60, "64 pages and a bit are touched"


def test_pages_are_renewed_only_inside_the_buffer() -> None:
    region = aligned_empty((3 * 4096,), "u8", 4096)
    region[...] = 7
    native.prepare("fresh_pages", region[100 : 2 * 4096 + 50])()
    assert (region[:4096] == 7).all()
    assert (region[4096 : 2 * 4096] == 0).all()
    assert (region[2 * 4096 :] == 7).all()


@pytest.mark.parametrize("sizes", [{"n": 1, "blocks": 5}, {"n": 10, "blocks": 16}, {"n": 5000, "blocks": 7}])
def test_pieces_cover_everything_once(sizes: dict[str, int]) -> None:
    parts = allocation.pieces(Case.of("allocation", "reused", "cpu", "f32", sizes))
    assert [part.start for part in parts] == [0, *(part.stop for part in parts[:-1])]
    assert parts[-1].stop == sizes["n"]
    assert all(part.stop > part.start for part in parts)


def test_pool_blocks_stand_behind_headers_and_off_cache_lines() -> None:
    blocks = allocation._cut_pool([16, 16, 5])
    offsets = [block.ctypes.data % 64 for block in blocks]
    assert offsets[0] == 16
    assert all(offset % 16 == 0 for offset in offsets)
    for first, second in itertools.pairwise(blocks):
        assert second.ctypes.data >= first.ctypes.data + first.nbytes + 16


def test_first_fit_reuses_holes_and_joins_them() -> None:
    pool = FirstFit(160)
    a, b, c = (pool.allocate(n) for n in (32, 48, 16))
    assert (a, b, c) == (0, 32, 80)
    pool.release(b)
    assert pool.free == 160 - 48
    assert pool.fragmentation == pytest.approx(48 / 112)
    assert pool.allocate(40) == 32
    pool.release(32)
    pool.release(a)
    assert pool.allocate(80) == 0, "two holes that touch are one"
    with pytest.raises(PoolFullError, match="64 are free, at most 64 together"):
        pool.allocate(65)
    pool.release(0)
    with pytest.raises(PoolFullError, match="144 are free, at most 80 together"):
        pool.allocate(100)
    with pytest.raises(KeyError):
        pool.release(16)


def test_blocks_of_one_size_leave_no_holes_and_varied_ones_do() -> None:
    same, varied = churn(64, 64, 16, 500, seed=1), churn(16, 1024, 16, 500, seed=1)
    assert same.failed == 0
    assert varied.failed > 0
    assert varied.fragmentation > same.fragmentation
    assert churn(16, 1024, 16, 500, seed=1) == varied
