"""The CUDA kernels on the CPU emulator, against float64: every variant, odd and tiny sizes, thread orders."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_cases import all_cases
from cuda_checks import CudaCase, unset

from flashperf.cuda import precision
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


def test_tf32_operands_are_rounded_to_nearest() -> None:
    """Tensor Cores read 10 bits of mantissa and drop the rest: unrounded, each operand would be too small."""
    m, k, n = 16, 32, 16
    above_half, exact = np.float32(1 + 3 * 2.0**-12), 1 + 2.0**-10  # nearest; cut off it would be 1
    for left, right in ((above_half, np.float32(1)), (np.float32(1), above_half)):
        y = unset((m, n), "f32")
        arrays = {"x": np.full((m, k), left), "w": np.full((k, n), right), "y": y}
        EmulatedCall("precision", precision.launches("tf32", "f32", arrays), "forward")()
        np.testing.assert_array_equal(y, np.float32(k * exact))
