"""The CUDA kernels under AddressSanitizer with UBSan, and under ThreadSanitizer: none has anything to say.

That these find what they should is shown by planted bugs in test_emulator_sanitizers.py.
"""

from __future__ import annotations

import pytest
from cuda_cases import all_cases
from cuda_checks import CudaCase

from flashperf.cuda.launcher import source
from flashperf.emulator import replay

CASES = all_cases()
MECHANISMS = sorted({case.mechanism for case in CASES})
_LARGE = 12_000  # bytes of outputs: beyond that a case is left to the other tests


def small_cases(mechanism: str) -> list[CudaCase]:
    """The cases of a mechanism, without the large ones of a kernel that a smaller one runs too."""
    chosen, seen = [], set()
    for case in CASES:
        if case.mechanism != mechanism:
            continue
        launches, expected = case.build()
        kernels = frozenset(launch.kernel for launch in launches)
        size = sum(output.array.nbytes for output in expected)
        if size <= _LARGE or not kernels <= seen:
            chosen.append(case)
            seen |= kernels
    return chosen


@pytest.mark.slow
@pytest.mark.parametrize("sanitizers", [("address", "undefined"), ("thread",)], ids=["memory", "races"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_nothing_found(mechanism: str, sanitizers: tuple[str, ...]) -> None:
    built = [case.build() for case in small_cases(mechanism)]
    launches = [launch for made, _ in built for launch in made]
    replay(source(mechanism), launches, sanitizers=sanitizers, order="random:5")
    for _, expected in built:
        for output in expected:
            output.check()
