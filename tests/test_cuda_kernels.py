"""The CUDA kernels on the CPU emulator, against float64: every variant, odd and tiny sizes, thread orders."""

from __future__ import annotations

import pytest
from cuda_cases import all_cases
from cuda_checks import CudaCase

from flashperf.cuda.launcher import EmulatedCall, emulated_module, source
from flashperf.emulator_build import source_folder

pytestmark = pytest.mark.slow  # every kernel is built for the emulator first

CASES = all_cases()
MECHANISMS = sorted({case.mechanism for case in CASES})
#: Each case in one of the other orders as well: over the sizes of a variant all of them come up.
OTHER_ORDERS = ("reverse", "random:1", "random:2", "random:3")


def run(case: CudaCase, order: str) -> None:
    launches, expected = case.build()
    EmulatedCall(case.mechanism, launches, order)()
    for output in expected:
        output.check()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_kernel_is_right(case: CudaCase) -> None:
    run(case, "forward")
    run(case, OTHER_ORDERS[CASES.index(case) % len(OTHER_ORDERS)])


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_kernel_of_the_file_is_run(mechanism: str) -> None:
    used = {launch.kernel for case in CASES if case.mechanism == mechanism for launch in case.build()[0]}
    assert used == set(emulated_module(mechanism).kernels)


def test_every_kernel_file_has_cases() -> None:
    assert sorted(path.stem for path in (source_folder() / "cuda").glob("*.cu")) == MECHANISMS
    assert all(source(mechanism).exists() for mechanism in MECHANISMS)
