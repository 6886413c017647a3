"""The CUDA emulator: threads, barriers, shared memory and warp operations, in several thread orders."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from emulator_fixtures import LANES, ORDERS, module, unset

from flashperf.dtypes import to_bf16

# ---- threads ---------------------------------------------------------------------------------------------


def test_dimensions_number_every_block_and_thread() -> None:
    out = unset(4 * 3 * 2 * 5 * 3 * 2, 6, dtype=np.int32)
    module("threads").launch("dimensions", (4, 3, 2), (5, 3, 2), [out])
    expected = [
        (bx, by, bz, tx, ty, tz)
        for bz in range(2) for by in range(3) for bx in range(4)
        for tz in range(2) for ty in range(3) for tx in range(5)
    ]  # fmt: skip
    np.testing.assert_array_equal(out, expected)


def test_order_decides_whose_turn_it_is() -> None:
    seen = {}
    for order in ORDERS:
        counter, out = np.zeros(1, np.int32), unset(64, dtype=np.int32)
        module("threads").launch("tickets", (1,), (64,), [counter, out], order=order)
        assert sorted(out) == list(range(64))
        seen[order] = out.tolist()
    assert seen["forward"] == list(range(64))
    assert seen["reverse"] == list(range(63, -1, -1))
    assert len({str(tickets) for tickets in seen.values()}) == 4


@pytest.mark.parametrize("order", ORDERS)
def test_barrier_separates_writes_from_reads(order: str) -> None:
    x, y = np.arange(300, dtype=np.float32), unset(300)
    module("threads").launch("reverse_in_block", (3,), (100,), [x, y], 400, order)
    np.testing.assert_array_equal(y.reshape(3, 100), x.reshape(3, 100)[:, ::-1])


@pytest.mark.parametrize("limit", [0, 1, 69, 70])
def test_barriers_with_predicates(limit: int) -> None:
    out = unset(70, 3, dtype=np.int32)
    module("threads").launch("predicates", (1,), (70,), [out, limit])
    np.testing.assert_array_equal(out, np.tile([limit, limit == 70, limit > 0], (70, 1)))


def test_shared_memory_is_nan_at_the_start_of_every_block() -> None:
    out = np.zeros((3, 32, 3), np.float32)
    module("threads").launch("fresh_shared", (3,), (32,), [out], 128)
    assert np.isnan(out).all()


def test_parameters_of_every_type() -> None:
    kernel = "every_type"
    types = "const i8*,const u8*,const f32*,const f16*,const bf16*,f64,i64,u32,u8,f64*"
    assert module("threads").kernels[kernel] == tuple(types.split(","))
    arrays = [np.array([-3], np.int8), np.array([200], np.uint8), np.arange(4, dtype=np.float32)]
    arrays += [np.array([1, 2], np.float16), to_bf16(np.array([0.5], np.float32))]
    out = np.zeros(1)
    module("threads").launch(kernel, (1,), (1,), [*arrays, 0.25, np.int64(2**40), 7, True, out])
    assert out[0] == -3 + 200 + 3 + 2 + 0.5 + 0.25 + 2**40 + 7 + 1


# ---- warps -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("width", [32, 16, 8])
def test_shuffles(order: str, width: int) -> None:
    x, out = (LANES * 7 % 13).astype(np.int32), unset(32, 4, dtype=np.int32)
    module("warps").launch("shuffles", (1,), (32,), [x, out, width], order=order)
    first = LANES // width * width

    def inside(source: np.ndarray) -> np.ndarray:
        return np.where((source >= first) & (source < first + width), source, LANES)

    sources = [first + (LANES + 3) % width, inside(LANES - 2), inside(LANES + 5), inside(LANES ^ 6)]
    np.testing.assert_array_equal(out.T, x[np.array(sources)])


def test_shuffles_move_eight_bytes_and_two() -> None:
    x, out = LANES + 1e-9, unset(32, 2, dtype=np.float64)
    module("warps").launch("shuffle_types", (1,), (32,), [x, out])
    np.testing.assert_array_equal(out, np.stack([x[LANES ^ 1], LANES ^ 1], axis=1))


@pytest.mark.parametrize("order", ORDERS)
def test_masks_split_a_warp(order: str) -> None:
    x, out = LANES.astype(np.int32), unset(32, dtype=np.int32)
    module("warps").launch("half_masks", (1,), (32,), [x, out], order=order)
    np.testing.assert_array_equal(out, np.where(LANES < 16, 120, 376))


def test_votes_and_matches() -> None:
    x, out = (LANES % 5 - 2).astype(np.int32), unset(32, 6, dtype=np.uint32)
    module("warps").launch("votes", (1,), (32,), [x, out])
    positive = sum(1 << lane for lane in range(32) if x[lane] > 0)
    same = [sum(1 << other for other in range(32) if x[other] == x[lane]) for lane in range(32)]
    np.testing.assert_array_equal(out[:, :3], np.tile([positive, 0, 1], (32, 1)))
    np.testing.assert_array_equal(out[:, 3], same)
    np.testing.assert_array_equal(out[:, 4], np.full(32, 0xFFFFFFFF))
    np.testing.assert_array_equal(out[:, 5], np.zeros(32))  # not all equal


def test_reductions() -> None:
    x, out = (LANES * 37 % 23 - 9).astype(np.int32), unset(32, 8, dtype=np.int32)
    module("warps").launch("reductions", (1,), (32,), [x, out])
    u = x.view(np.uint32)
    bits = [np.bitwise_and.reduce(x), np.bitwise_or.reduce(x), np.bitwise_xor.reduce(x)]
    expected = [x.sum(), x.min(), x.max(), *bits, u.min().view(np.int32), u.max().view(np.int32)]
    np.testing.assert_array_equal(out, np.tile(expected, (32, 1)))


def test_a_full_mask_in_a_partial_warp_means_the_lanes_that_exist() -> None:
    x, out = np.ones(40, np.int32), unset(40, dtype=np.int32)
    module("warps").launch("partial_warp", (1,), (40,), [x, out])
    np.testing.assert_array_equal(out, [32 + 32000] * 32 + [8 + 8000] * 8)


@pytest.mark.parametrize("order", ORDERS)
def test_cooperative_groups_tiles(order: str) -> None:
    x = (np.arange(64) * 11 % 17 - 8).astype(np.float32)
    out = unset(64, 6)
    module("warps").launch("tiles", (1,), (32, 2), [x, out], order=order)
    t = x.reshape(8, 8)
    down = np.concatenate([t[:, 1:], t[:, -1:]], axis=1) + 100 * np.concatenate([t[:, :1], t[:, :-1]], axis=1)
    ballot = ((t > 0) * 2 ** np.arange(8)).sum(axis=1)
    expected = [t.sum(axis=1), t.max(axis=1), t[:, 2], None, ballot]
    for column, values in enumerate(expected):
        wanted = down.ravel() if values is None else np.repeat(values, 8)
        np.testing.assert_array_equal(out[:, column], wanted)
    np.testing.assert_array_equal(out[:, 5], np.arange(64) % 8 + 100 * (np.arange(64) // 8))


@pytest.mark.parametrize("order", ORDERS)
def test_syncwarp_orders_a_warp(order: str) -> None:
    out = unset(128)
    module("warps").launch("warp_barrier", (1,), (128,), [out], order=order)
    np.testing.assert_array_equal(out, 1 + np.arange(128) // 32 * 32)


def test_the_portable_switch_of_fibers_gives_the_same() -> None:
    """ucontext in place of assembly, in a process of its own: the runtime is built once per process."""
    program = (
        "import numpy as np; from emulator_fixtures import module, unset;"
        "x = np.arange(300, dtype=np.float32); y = unset(300);"
        "module('threads').launch('reverse_in_block', (3,), (100,), [x, y], 400, 'random:1');"
        "assert (y.reshape(3, 100) == x.reshape(3, 100)[:, ::-1]).all()"
    )
    environment = os.environ | {
        "FLASHPERF_EMULATOR_FLAGS": "-DFLASHPERF_UCONTEXT",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
