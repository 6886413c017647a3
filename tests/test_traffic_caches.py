"""The cache model and the order in which requests reach it, on numbers known by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from flashperf.emulator import Launch
from flashperf.traffic.caches import SectorCache
from flashperf.traffic.hierarchy import Shape, simulate, times
from flashperf.traffic.trace import REQUEST, Kind, Trace

LINE = 128


def test_a_line_is_filled_by_sectors() -> None:
    cache = SectorCache(2 * LINE)
    assert cache.read(0, 0b0011) == 0b0011
    assert cache.read(0, 0b0110) == 0b0100
    assert cache.read(0, 0b1111) == 0b1000
    assert cache.read(0, 0b1111) == 0


def test_the_line_used_longest_ago_goes() -> None:
    cache = SectorCache(2 * LINE)
    for line in (1, 2, 1, 3):  # 2 goes, not 1
        cache.read(line, 1)
    assert [cache.read(line, 1) for line in (1, 3)] == [0, 0]
    assert cache.read(2, 1) == 1


def test_writes_stay_and_are_written_back_once() -> None:
    cache = SectorCache(1 * LINE)
    cache.write(0, 0b0111)
    assert cache.read(0, 0b0111) == 0
    cache.write(0, 0b0001)
    assert cache.written_back == 0
    cache.read(5, 1)
    assert cache.written_back == 3
    cache.write(5, 0b1000)
    cache.flush()
    cache.flush()
    assert cache.written_back == 4
    assert cache.read(5, 0b1001) == 0  # it is still there


def test_a_write_through_keeps_a_line_but_makes_none() -> None:
    cache = SectorCache(2 * LINE)
    cache.write_through(9)
    assert cache.read(9, 1) == 1
    cache.read(8, 1)
    cache.write_through(9)
    cache.read(7, 1)
    assert (cache.read(9, 1), cache.read(8, 1)) == (0, 1)


# ---- order -----------------------------------------------------------------------------------------------


def requests(rows: list[tuple[int, int, int, int]], kind: Kind = Kind.READ) -> np.ndarray:
    """(block, warp, epoch, place) of each; one sector each."""
    made = np.zeros(len(rows), REQUEST)
    for name, column in zip(("block", "warp", "epoch", "place"), zip(*rows, strict=True), strict=True):
        made[name] = column
    made["kind"], made["sectors"], made["first_sector"] = kind, 1, np.arange(len(rows))
    return made


def test_warps_of_a_block_take_turns_between_barriers() -> None:
    rows = [(0, 0, 0, 0), (0, 0, 0, 1), (0, 1, 0, 0), (0, 1, 0, 1), (0, 0, 1, 0), (0, 1, 1, 0)]
    assert times(requests(rows), Shape(1, 0, 0, 1)).tolist() == [0, 2, 1, 3, 4, 5]


def test_blocks_fill_the_sms_then_wait_for_their_slot() -> None:
    rows = [(block, 0, 0, place) for block in range(5) for place in range(2)]
    assert times(requests(rows), Shape(2, 0, 0, 1)).tolist() == [0, 1, 0, 1, 2, 3, 2, 3, 4, 5]
    assert times(requests(rows), Shape(2, 0, 0, 2)).tolist() == [0, 1, 0, 1, 0, 1, 0, 1, 2, 3]


def trace(made: np.ndarray, sectors: list[int]) -> Trace:
    launch = Launch("made", (1,), (32,), ())
    return Trace(launch, made, np.array(sectors, np.uint64), (), 0, 0, 0, Path())


def test_other_blocks_push_out_what_a_block_would_find_alone() -> None:
    """Two blocks on one SM walk two lines each, twice; L1 holds three lines."""
    made = requests([(block, 0, 0, place) for block in (0, 1) for place in range(4)])
    found = trace(made, [0, 4, 0, 4, 400, 404, 400, 404])
    shape = [Shape(1, 3 * LINE, 1 << 20, 2)]
    assert simulate([found], shape)[0].l1_hits == 0
    assert simulate([found], shape, in_order=True)[0].l1_hits == 4


def test_l1_is_empty_and_l2_warm_at_the_next_launch() -> None:
    made = requests([(0, 0, 0, 0), (0, 0, 0, 1)])
    found, shape = trace(made, [0, 4]), Shape(1, 1 << 10, 1 << 20, 1)
    first, second = simulate([found, found], [shape, shape])
    assert (first.l1_hits, first.l2_hits, first.memory_read_bytes) == (0, 0, 64)
    assert (second.l1_hits, second.l2_hits, second.memory_read_bytes) == (0, 2, 0)
    assert second.l2_hit_rate == 1.0


def test_what_is_written_and_left_in_l2_counts_at_the_end() -> None:
    written = trace(requests([(0, 0, 0, 0)], Kind.WRITE), [0])
    read = trace(requests([(0, 0, 0, 0)]), [0])
    shape = Shape(1, 1 << 10, 1 << 20, 1)
    first, second = simulate([written, read], [shape, shape])
    assert (first.memory_written_bytes, second.memory_written_bytes) == (0, 32)
    assert (second.l2_hits, second.memory_read_bytes) == (1, 0)


@pytest.mark.parametrize("kind", [Kind.ATOMIC, Kind.COPY_PAST_L1])
def test_some_accesses_pass_l1_by(kind: Kind) -> None:
    made = requests([(0, 0, 0, 0), (0, 0, 0, 1)], kind)
    counts = simulate([trace(made, [0, 0])], [Shape(1, 1 << 10, 1 << 20, 1)])[0]
    assert (counts.l1_sectors, counts.l2_sectors, counts.l2_hits) == (0, 2, 1)
    assert counts.memory_written_bytes == (32 if kind == Kind.ATOMIC else 0)


def test_no_launches_move_nothing() -> None:
    assert simulate([], []) == []
