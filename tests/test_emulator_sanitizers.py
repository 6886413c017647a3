"""Each detector finds its planted bug, and has nothing to say about the same kernel without it."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from flashperf.emulator import EmulatorError, Launch, Module, SanitizerError, replay

pytestmark = pytest.mark.slow  # every fixture is built and run under two sanitizers

SOURCE = Path(__file__).parent / "emulator" / "detectors.cu"
N = 64
MEMORY = ("address", "undefined")
RACES = ("thread",)

#: Kernel -> (sanitizers, words of the report).
FOUND_BY_SANITIZER = {
    "global_out_of_bounds": (MEMORY, "heap-buffer-overflow"),
    "static_shared_out_of_bounds": (MEMORY, "global-buffer-overflow"),
    "template_shared_out_of_bounds": (MEMORY, "global-buffer-overflow"),
    "dynamic_shared_out_of_bounds": (MEMORY, "heap-buffer-overflow"),
    "row_overrun": (MEMORY, "index 8 out of bounds for type 'float [8]'"),
    "misaligned_vector": (MEMORY, "misaligned address"),
    "missing_barrier": (RACES, "data race"),
    "missing_loop_barrier": (RACES, "data race"),
    "missing_warp_barrier": (RACES, "data race"),
    "early_copy": (RACES, "data race"),
}
#: Kernel -> words of the EmulatorError, with no sanitizer at all.
FOUND_BY_SCHEDULER = {
    "divergent_barrier": "divergent barrier\n  threads 0-31: at __syncthreads",
    "wrong_shuffle_mask": "wrong mask",
}
#: Found by what is in memory: NaN where nothing was written or no copy has arrived yet.
FOUND_BY_NAN = ("missing_wait", "early_copy", "unset_shared", "missing_barrier", "missing_warp_barrier")
KERNELS = sorted({*FOUND_BY_SANITIZER, *FOUND_BY_SCHEDULER, *FOUND_BY_NAN})


@cache
def module() -> Module:
    return Module(SOURCE)


def launch(kernel: str, *, planted: bool) -> tuple[Launch, np.ndarray, np.ndarray]:
    x, y = np.arange(N, dtype=np.float32), np.full(N, np.nan, np.float32)
    return Launch(kernel, (1,), (N,), (x, y, N, int(planted)), 4 * N), x, y


def test_every_kernel_of_the_fixture_is_used() -> None:
    assert sorted(module().kernels) == KERNELS


@pytest.mark.parametrize("sanitizers", [(), MEMORY, RACES], ids=["plain", "memory", "races"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_clean_twin_passes(kernel: str, sanitizers: tuple[str, ...]) -> None:
    for order in ("forward", "reverse", "random:4"):
        request, x, y = launch(kernel, planted=False)
        if sanitizers:
            replay(SOURCE, [request], sanitizers=sanitizers, order=order)
        else:
            module().run(request, order)
        np.testing.assert_array_equal(y, 2 * x)


@pytest.mark.parametrize("kernel", FOUND_BY_SANITIZER)
def test_sanitizer_finds(kernel: str) -> None:
    sanitizers, words = FOUND_BY_SANITIZER[kernel]
    with pytest.raises(SanitizerError) as error:
        replay(SOURCE, [launch(kernel, planted=True)[0]], sanitizers=sanitizers)
    assert words in str(error.value)
    assert "detectors.cu" in str(error.value)  # the report leads to the kernel's line


@pytest.mark.parametrize("kernel", FOUND_BY_SCHEDULER)
@pytest.mark.parametrize("how", ["in this process", "replayed"])
def test_scheduler_finds(kernel: str, how: str) -> None:
    request = launch(kernel, planted=True)[0]
    run = (lambda r: replay(SOURCE, [r], sanitizers=MEMORY)) if how == "replayed" else module().run
    with pytest.raises(EmulatorError) as error:
        run(request)
    assert f"{kernel}, block (0,0,0): {FOUND_BY_SCHEDULER[kernel]}" in str(error.value)


@pytest.mark.parametrize("kernel", FOUND_BY_NAN)
def test_nan_shows(kernel: str) -> None:
    request, _, y = launch(kernel, planted=True)
    module().run(request)
    assert np.isnan(y).any()


def test_thread_order_shows_a_missing_loop_barrier_or_not() -> None:
    """Values alone may miss it: both rounds store the same numbers. That is why ThreadSanitizer is there."""
    request, x, y = launch("missing_loop_barrier", planted=True)
    module().run(request, "random:1")
    np.testing.assert_array_equal(y, 2 * x)


def test_replay_gives_the_results_of_several_launches_on_shared_memory() -> None:
    values = np.arange(2 * N, dtype=np.float32)
    first, second = values[:N], values[N:]
    result = np.full(N, np.nan, np.float32)
    launches = [
        Launch("global_out_of_bounds", (1,), (N,), (first, second, N, 0)),
        Launch("global_out_of_bounds", (1,), (N,), (second, result, N, 0)),
    ]
    replay(SOURCE, launches)
    np.testing.assert_array_equal(second, 2 * first)
    np.testing.assert_array_equal(result, 4 * first)


def test_unknown_sanitizer() -> None:
    with pytest.raises(ValueError, match="unknown sanitizer 'adress': did you mean address"):
        replay(SOURCE, [], sanitizers=("adress",))
