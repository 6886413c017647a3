"""Traffic of kernels whose requests are known by hand: sectors, bank conflicts, lanes that differ, copies."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from flashperf.emulator import EmulatorError, Launch
from flashperf.traffic.hierarchy import Shape, simulate
from flashperf.traffic.summary import Traffic, by_line, summarise
from flashperf.traffic.trace import Kind, Space, Trace, Tracer

SOURCE = Path(__file__).parent / "traffic" / "toys.cu"


@cache
def tracer() -> Tracer:
    return Tracer(SOURCE)


def trace(kernel: str, n: int = 0, threads: int = 32, blocks: int = 1) -> Trace:
    x, y = np.zeros(4096, np.float32), np.zeros(4096, np.float32)
    return tracer().run(Launch(kernel, (blocks,), (threads,), (x, y, np.int32(n))))


def traffic(kernel: str, n: int = 0, **geometry: int) -> Traffic:
    return summarise(trace(kernel, n, **geometry))


@pytest.mark.parametrize(
    ("kernel", "n", "sectors", "efficiency"),
    [
        ("coalesced", 0, 4, 1.0),
        ("backwards", 0, 4, 1.0),
        ("strided", 2, 8, 0.5),
        ("strided", 4, 16, 0.25),
        ("strided", 8, 32, 0.125),
        ("strided", 100, 32, 0.125),
        ("offset", 1, 5, 0.8),
        ("offset", 8, 4, 1.0),
        ("broadcast", 5, 1, 1.0),
        ("wide", 0, 16, 1.0),
        ("wide_sum", 0, 16, 1.0),
        ("halves", 0, 2, 1.0),
    ],
)
def test_sectors_of_a_load(kernel: str, n: int, sectors: int, efficiency: float) -> None:
    found = traffic(kernel, n).loads
    assert (found.requests, found.sectors_per_request) == (1, sectors)
    assert found.efficiency == pytest.approx(efficiency)


def test_stores_are_counted_apart() -> None:
    found = traffic("wide").stores
    assert (found.requests, found.sectors, found.efficiency) == (1, 16, 1.0)


def test_thread_indices_are_no_traffic() -> None:
    found = traffic("nothing_read", threads=64, blocks=3)
    assert (found.loads.requests, found.shared.requests, found.read_bytes) == (0, 0, 0)
    assert (found.stores.requests, found.written_bytes) == (6, 256)  # the blocks write the same 64 elements


def test_lanes_beyond_the_end_ask_for_nothing() -> None:
    found = traffic("guarded", 40, threads=64, blocks=2)
    assert (found.loads.requests, found.loads.sectors) == (2, 5)
    assert (found.read_bytes, found.written_bytes) == (160, 160)


def test_a_partial_warp_is_a_request() -> None:
    requests = trace("coalesced", threads=40).requests
    assert sorted(requests["lanes"].tolist()) == [8, 8, 32, 32]


def test_lanes_meet_at_the_same_round_of_a_loop() -> None:
    requests = trace("triangle").requests
    loads = requests[requests["kind"] == Kind.READ]
    assert loads["lanes"].tolist() == list(range(31, 0, -1))
    assert loads["sectors"].tolist() == [1] * 31


def test_lanes_meet_again_after_they_differed() -> None:
    requests = trace("uneven", 2).requests
    assert requests["lanes"][requests["kind"] == Kind.READ].tolist() == [32, 16, 32]


def test_branches_are_requests_of_their_own() -> None:
    found = trace("branches")
    loads = found.requests[found.requests["kind"] == Kind.READ]
    assert loads["lanes"].tolist() == [16, 16]
    assert summarise(found).loads.sectors == 4


def test_an_atomic_is_one_sector_for_all_lanes() -> None:
    found = traffic("same_atomic")
    assert (found.atomics.requests, found.atomics.sectors) == (1, 1)
    assert (found.read_bytes, found.written_bytes) == (128 + 4, 4)


@pytest.mark.parametrize(
    ("kernel", "n", "wavefronts", "least"),
    [
        ("transpose_conflicting", 0, 32 + 32 * 32, 64),
        ("transpose_padded", 0, 64, 64),
        ("shared_strided", 1, 2, 2),  # the store, and a load that all lanes share
        ("shared_strided", 2, 3, 2),
        ("shared_strided", 32, 33, 2),
        ("shared_strided", 5, 2, 2),
        ("shared_wide", 0, 8, 8),  # 512 bytes take 4 wavefronts each way
        ("shared_wide", 1, 8, 8),
        ("tiles_conflicting", 0, 8 + 16, 8 + 2),  # 8 wavefronts of copies; two ldmatrix tiles of 8 rows
        ("tiles_swizzled", 0, 8 + 2, 8 + 2),
    ],
)
def test_bank_conflicts(kernel: str, n: int, wavefronts: int, least: int) -> None:
    found = traffic(kernel, n).shared
    assert (found.wavefronts, found.least_wavefronts) == (wavefronts, least)


def test_copies_of_16_bytes_pass_l1_by() -> None:
    found = trace("tiles_swizzled")
    kinds = found.requests["kind"][found.requests["space"] == Space.GLOBAL].tolist()
    assert kinds == [Kind.COPY_PAST_L1, Kind.COPY_PAST_L1, Kind.WRITE]
    counts = simulate([found], [Shape(1, 1 << 16, 1 << 20, 1)])[0]
    assert (counts.l1_sectors, counts.l2_sectors, counts.memory_read_bytes) == (0, 32, 1024)


def test_copies_that_are_not_valid_read_nothing() -> None:
    found = trace("copies_of_4", 8)
    loads = found.requests[found.requests["kind"] == Kind.COPY]
    assert (loads["lanes"].tolist(), loads["sectors"].tolist()) == ([8], [1])
    assert found.read_bytes == 32
    assert summarise(found).shared.requests == 2  # all lanes' zeros and values, and the load


@pytest.mark.parametrize(("leading", "sectors"), [(16, 16), (32, 16), (24, 24)])
def test_a_wmma_tile_is_one_request(leading: int, sectors: int) -> None:
    """16 rows of 32 bytes, wherever they start: sectors are those that hold them."""
    found = traffic("wmma_tile", leading)
    assert found.loads.requests == 2
    assert found.loads.sectors == 2 * sectors
    assert (found.stores.requests, found.stores.sectors) == (1, 32)


def test_a_second_round_comes_from_l1_if_it_fits() -> None:
    """2048 bytes are 16 lines of 128: read by one block twice, and from L2 by the other SM."""
    found = trace("rounds", 512, blocks=2)
    fits, too_small = (simulate([found], [Shape(2, lines * 128, 1 << 20, 1)])[0] for lines in (16, 15))
    assert (fits.l1_sectors, fits.l1_hits) == (256, 128)
    assert (fits.l2_sectors, fits.l2_hits, fits.memory_read_bytes) == (128, 64, 2048)
    assert too_small.l1_hits == 0  # the line that is needed next is always the one that went out
    assert (too_small.l2_sectors, too_small.memory_read_bytes) == (256, 2048)


def test_accesses_are_found_in_the_source() -> None:
    rows = by_line(trace("strided", 8))
    text = SOURCE.read_text().splitlines()
    line = 1 + next(i for i, one in enumerate(text) if one.startswith("TOY(strided)"))
    if rows[0].line != "?":
        assert [(row.line, row.what) for row in rows] == [
            (f"toys.cu:{line}", "load"),
            (f"toys.cu:{line}", "store"),
        ]
    assert [row.excess for row in rows] == [28, 0]


def test_arrays_start_as_a_gpu_would_align_them() -> None:
    raw = np.zeros(4096 + 1, np.float32)
    launch = Launch("coalesced", (1,), (32,), (raw[1:], np.zeros(32, np.float32), np.int32(0)))
    assert summarise(tracer().run(launch)).loads.sectors == 4


def test_errors_are_those_of_the_emulator() -> None:
    with pytest.raises(EmulatorError, match="threads"):
        trace("coalesced", threads=2048)
    assert traffic("coalesced").loads.sectors == 4  # and the next launch is whole
