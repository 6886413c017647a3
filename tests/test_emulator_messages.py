"""The CUDA emulator: the exact words for what a GPU would refuse, hang in or leave undefined."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from emulator_fixtures import ORDERS, module, unset

from flashperf.emulator import EmulatorError, Module
from flashperf.emulator_build import BuildError
from flashperf.errors import UserError

# ---- messages --------------------------------------------------------------------------------------------

MESSAGES = {
    "barrier_in_branch": """barrier_in_branch, block (0,0,0): divergent barrier
  threads 0-31: at __syncthreads (mistakes.cu:7)
  threads 32-63: at __syncthreads (mistakes.cu:9)""",
    "barrier_against_shuffle": """barrier_against_shuffle, block (0,0,0): divergent barrier
  threads 0-7: at __syncthreads (mistakes.cu:21)
  threads 8-31: at __shfl_sync (mistakes.cu:22), mask 0xffffffff
  threads 32-63: exited""",
    "dead_lane": """dead_lane, block (0,0,0): dead lane: \
the mask of __shfl_xor_sync (mistakes.cu:27) names lane 20, which has exited
  threads 0-19: at __shfl_xor_sync (mistakes.cu:27), mask 0xffffffff
  threads 20-31: exited""",
    "outside_own_mask": """outside_own_mask, block (0,0,0): wrong mask: a caller is not in its own mask
  thread 16: at __shfl_sync (mistakes.cu:31), mask 0x0000ffff""",
    "reads_outside_mask": """reads_outside_mask, block (0,0,0): wrong mask: \
__shfl_xor_sync (mistakes.cu:35): lane 0 reads lane 16, which mask 0x0000ffff leaves out""",
    "different_masks": """different_masks, block (0,0,0): dead lane: \
the mask of __syncwarp (mistakes.cu:40) names lane 3, which has exited
  threads 0-2, 5-31: running
  thread 3: exited
  thread 4: at __syncwarp (mistakes.cu:40), mask 0xffffffff""",
    "different_operations": """different_operations, block (0,0,0): \
lanes of a warp disagree on operation or mask
  threads 0-2: at __ballot_sync (mistakes.cu:46), mask 0xffffffff
  thread 3: at __syncwarp (mistakes.cu:45), mask 0xffffffff
  threads 4-31: running""",
    "never_arrives": """never_arrives, block (0,0,0): deadlock in a warp operation
  threads 0, 4-63: exited
  thread 1: at __shfl_sync (mistakes.cu:51), mask 0x00000006
  thread 2: at __shfl_sync (mistakes.cu:52), mask 0x0000000c
  thread 3: at __shfl_sync (mistakes.cu:53), mask 0x0000000a""",
    "misaligned_ldmatrix": """misaligned_ldmatrix, block (0,0,0): misaligned: ldmatrix (mistakes.cu:59): \
the row address of lane 5 is not a multiple of 16 bytes""",
    "traps": "traps, block (0,1,0): __trap()",
}


@pytest.mark.parametrize("kernel", MESSAGES)
def test_messages_say_which_block_and_which_threads_wait_where(kernel: str) -> None:
    with pytest.raises(EmulatorError) as error:
        module("mistakes").launch(kernel, (1, 2), (64,), [unset(64)])
    assert str(error.value) == MESSAGES[kernel]


def test_barrier_after_exit_names_the_block() -> None:
    with pytest.raises(EmulatorError) as error:
        module("mistakes").launch("barrier_after_exit", (3,), (16,), [unset(16), 40])
    assert str(error.value) == (
        "barrier_after_exit, block (2,0,0): divergent barrier\n"
        "  threads 0-7: at __syncthreads (mistakes.cu:16)\n  threads 8-15: exited"
    )


def test_misaligned_copy() -> None:
    with pytest.raises(EmulatorError) as error:
        module("mistakes").launch("misaligned_copy", (1,), (1,), [np.zeros(8, np.float32), unset(8)])
    message = "misaligned_copy, block (0,0,0): misaligned: cp.async (mistakes.cu:65) of 16 bytes"
    assert str(error.value) == message


@pytest.mark.parametrize("order", ORDERS)
def test_a_failed_launch_leaves_the_module_usable(order: str) -> None:
    for _ in range(2):
        with pytest.raises(EmulatorError):
            module("mistakes").launch("dead_lane", (1,), (64,), [unset(64)], order=order)
        out = unset(64)
        module("mistakes").launch("traps", (1, 1), (64,), [out], order=order)
        assert (out == 1).all()


@pytest.mark.parametrize(
    "kernel, grid, block, shared, message",
    [
        ("tickets", (1,), (1025,), 0, "tickets: a block of 1025 threads, where at most 1024 fit"),
        ("tickets", (0,), (32,), 0, "tickets: a grid of 0 x 1 x 1 blocks"),
        ("tickets", (1, 65536), (32,), 0, "tickets: a grid of 1 x 65536 x 1 blocks"),
        ("tickets", (1,), (32,), 300_000, "tickets: 300000 bytes of shared memory, where at most 232448 fit"),
    ],
)
def test_launches_that_a_gpu_refuses(
    kernel: str, grid: tuple, block: tuple, shared: int, message: str
) -> None:
    args = [np.zeros(1, np.int32), unset(2000, dtype=np.int32)]
    with pytest.raises(EmulatorError) as error:
        module("threads").launch(kernel, grid, block, args, shared)
    assert str(error.value) == message


def test_launch_bounds_are_kept() -> None:
    module("threads").launch("bounded", (1,), (64,), [unset(64, dtype=np.int32)])
    with pytest.raises(EmulatorError, match="a block of 65 threads, where at most 64 fit"):
        module("threads").launch("bounded", (1,), (65,), [unset(65, dtype=np.int32)])


def test_arguments_that_do_not_fit() -> None:
    threads, counter, out = module("threads"), np.zeros(1, np.int32), unset(8, dtype=np.int32)
    read_only = out.copy()
    read_only.flags.writeable = False
    with pytest.raises(TypeError, match=r"tickets: takes 2 arguments \(i32\*, i32\*\), got 1"):
        threads.launch("tickets", (1,), (8,), [counter])
    with pytest.raises(TypeError, match=r"tickets: argument 1 \(i32\*\) has dtype float32, needs int32"):
        threads.launch("tickets", (1,), (8,), [counter, out.astype(np.float32)])
    with pytest.raises(TypeError, match=r"tickets: argument 1 \(i32\*\) is a int"):
        threads.launch("tickets", (1,), (8,), [counter, 3])
    with pytest.raises(TypeError, match=r"predicates: argument 1 \(i32\) has dtype float64"):
        threads.launch("predicates", (1,), (8,), [out, np.float64(1)])
    with pytest.raises(ValueError, match=r"tickets: argument 1 \(i32\*\) is not C-contiguous"):
        threads.launch("tickets", (1,), (4,), [counter, out[::2]])
    with pytest.raises(ValueError, match=r"is read-only, but the kernel may write it"):
        threads.launch("tickets", (1,), (8,), [counter, read_only])
    with pytest.raises(EmulatorError, match="unknown kernel 'ticket': did you mean tickets"):
        threads.launch("ticket", (1,), (8,), [counter, out])
    with pytest.raises(EmulatorError, match="tickets: unknown thread order sideways"):
        threads.launch("tickets", (1,), (8,), [counter, out], order="sideways")


def test_a_source_that_does_not_compile_shows_the_compilers_words(tmp_path: Path) -> None:
    source = tmp_path / "broken.cu"
    source.write_text('extern "C" __global__ void k(float* x) { x[0] = undefined_name; }\n')
    with pytest.raises(BuildError, match=r"fails: broken.cu:1:.*undefined_name.*") as told:
        Module(source)
    assert "\n" not in str(told.value)
    assert isinstance(told.value, UserError)  # a line on the command line, not a failure of ours


def test_a_header_that_is_missing_is_named(tmp_path: Path) -> None:
    source = tmp_path / "broken.cu"
    source.write_text('\n#include "nowhere.cuh"\n')
    with pytest.raises(
        BuildError, match=r"^the emulator's build fails: broken.cu:2: nowhere.cuh: No such file"
    ):
        Module(source)
