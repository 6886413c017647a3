"""Ragged rows: their lengths, the batches that are made of them, and the threads that share them out."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import numpy as np
import pytest

from flashperf import registry
from flashperf.errors import UserError
from flashperf.mechanisms import _ragged, batching, cache, pinning
from flashperf.records import Case


@pytest.mark.parametrize(
    ("count", "total", "longest"),
    [(1, 1, 1), (1, 9, 9), (4, 8, 2), (4, 5, 2), (30, 1000, 128), (9, 300, 250)],
)
def test_lengths_are_as_asked_for(count: int, total: int, longest: int) -> None:
    found = _ragged.lengths(3, count, total, longest)
    assert len(found) == count
    assert found.sum() == total
    assert found.min() >= 1
    assert found.max() == longest
    np.testing.assert_array_equal(found, _ragged.lengths(3, count, total, longest))
    start = _ragged.starts(found)
    np.testing.assert_array_equal(np.diff(start), found)


def test_lengths_vary_with_the_seed() -> None:
    assert (_ragged.lengths(0, 30, 1000, 128) != _ragged.lengths(1, 30, 1000, 128)).any()
    assert len(set(_ragged.lengths(0, 30, 1000, 128))) > 10


@pytest.mark.parametrize(("count", "total", "longest"), [(4, 100, 7), (4, 5, 5)])
def test_lengths_that_can_not_be_are_refused(count: int, total: int, longest: int) -> None:
    with pytest.raises(UserError, match=f"{count} sequences of 1 to {longest} can't have {total} elements"):
        _ragged.lengths(0, count, total, longest)


def test_buckets_hold_lengths_up_to_the_same_power_of_two() -> None:
    found = batching.groups("bucketed", np.array([1, 5, 2, 8, 9, 3, 16]))
    assert [members.tolist() for members in found] == [[0], [2], [5], [1, 3], [4, 6]]
    assert [members.tolist() for members in batching.groups("padded", np.array([3, 1]))] == [[0, 1]]
    assert batching.groups("packed", np.array([3, 1])) == batching.groups("single", np.array([3, 1])) == []


def test_flops_say_how_many_rows_are_multiplied() -> None:
    sizes = {"sequences": 32, "rows": 1024, "longest": 128, "k": 8, "n": 4}
    case = Case.of("batching", "packed", "cpu", "f32", sizes)
    rows = {v: batching.cost(case.with_variant(v)).flops / (2 * 8 * 4) for v in batching.MECHANISM.variants}
    assert rows["packed"] == rows["single"] == 1024
    assert rows["padded"] == 32 * 128
    assert 1024 < rows["bucketed"] < 2 * 1024, "less than twice a power of two"


def test_both_orders_move_the_same_bytes_in_slices_that_cover_everything() -> None:
    case = Case.of("cache", "whole", "cpu", "f32", {"n": 1030, "chunk": 301})
    whole, chunked = cache.cost(case), cache.cost(case.with_variant("chunked"))
    assert dataclasses.replace(chunked, launches=whole.launches) == whole
    assert (whole.launches, chunked.launches) == (2, 8)
    assert cache.parts("chunked", 1030, 301) == [
        slice(0, 304),
        slice(304, 608),
        slice(608, 912),
        slice(912, 1030),
    ]


def test_rows_come_longest_first() -> None:
    case = Case.of("pinning", "work_queue", "cpu", "f32", pinning.MECHANISM.bench_sizes[0])
    found = pinning.lengths(case)
    assert (np.diff(found) <= 0).all()
    assert found[:512].sum() > 0.7 * found.sum(), "a static share of half of the rows is most of the work"


def test_more_threads_than_a_pool_has_are_refused() -> None:
    mechanism = registry.mechanism("pinning")
    sizes = dict(mechanism.test_sizes[0]) | {"threads": 257}
    reason = mechanism.supports(Case.of("pinning", "work_queue", "cpu", "f32", sizes))
    assert reason == "pinning starts at most 256 threads, not 257"


THREADS = """
import os, re
from pathlib import Path
import numpy as np
from flashperf import native

x, start, y = np.ones(64, np.float32), np.arange(0, 65, 8, dtype=np.int32), np.zeros(8, np.float32)
cores = min(2, len(os.sched_getaffinity(0)))

def call(pinned):
    y[...] = 0
    native.prepare("rows_by_queue", x, start, y, threads=2, pinned=pinned)()
    assert (y == 1).all(), y

def bound():
    tasks = [(task / "status").read_text() for task in Path("/proc/self/task").iterdir()]
    return {int(c) for text in tasks for c in re.findall(r"Cpus_allowed_list:\\t(\\d+)\\n", text)}

before = bound()
call(0)
assert bound() == before, "free threads are bound"
call(1)
assert len(bound()) == cores, bound()
if child := os.fork():
    assert os.waitpid(child, 0)[1] == 0, "a forked process did not start threads of its own"
else:
    call(0)
    os._exit(0)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="threads are bound to cores on Linux alone")
def test_threads_are_bound_where_asked_for_and_started_again_after_a_fork() -> None:
    """In a process of its own: its threads stay."""
    done = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
