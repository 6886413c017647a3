"""The CUDA variants of every mechanism: on a GPU where there is one, else on the emulator in every thread order.

The emulator stands in for checks alone. Kernels by themselves, in more types and at more sizes, are in
test_cuda_kernels.py.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from flashperf import registry
from flashperf.backends import available
from flashperf.cuda.launcher import EmulatedCall, emulated_module
from flashperf.emulator import Launch
from flashperf.measure import bind_case, measure_pair
from flashperf.problem import Problem, UnavailableError, load_problem
from flashperf.records import Case

MECHANISMS = {
    name: mechanism for name in registry.names() if "cuda" in (mechanism := registry.mechanism(name)).bind
}
CASES = [case for m in MECHANISMS.values() for case in registry.cases(m, "test", backends=["cuda"])]
IDS = [case.id for case in CASES]
#: Mechanisms whose launches are given whole arrays and told which part is theirs -> launches for a part.
KERNELS_OF_A_PART = {"launch": 1, "cache": 2}
#: Windows see some of the keys, buckets some of the rows; scores and queues are written where they are read.
READ_IN_PART = ("attention", "batching", "launch", "pinning")
ORDERS = ("forward", "reverse", "random:1")

on_the_emulator = pytest.mark.skipif(not available("cuda"), reason="there is a GPU: nothing is emulated")


def problem_of(case: Case) -> Problem:
    mechanism = MECHANISMS[case.mechanism]
    if reason := mechanism.supports(case):
        pytest.skip(reason)
    return load_problem(mechanism, case, emulated=True)


@cache
def emulated(case: Case) -> tuple[Launch, ...]:
    """The launches of a case whose arrays lie on the host."""
    call, _, _ = load_problem(MECHANISMS[case.mechanism], case, emulated=True).bind()
    assert isinstance(call, EmulatedCall)
    return call.launches


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_case_is_right(case: Case) -> None:
    """On poisoned outputs each time, so that an element that only an earlier order wrote is found."""
    if not available("cuda"):
        assert bind_case(MECHANISMS[case.mechanism], case).check.passed
        return
    problem = problem_of(case)
    call, inputs, outputs = problem.bind()
    assert isinstance(call, EmulatedCall)
    for i, order in enumerate(ORDERS):
        call.order = order
        call()
        assert problem.check(call, inputs, outputs).passed
        problem.poison(call, outputs, again=i % 2 == 0)


def bytes_moved(case: Case, launches: tuple[Launch, ...]) -> tuple[int, int]:
    """Bytes of the arrays that the kernels of a call may read (const in CUDA) and write, summed over launches."""
    kernels = {
        k: v for name in ("precision", case.mechanism) for k, v in emulated_module(name).kernels.items()
    }
    read = written = 0
    for launch in launches:
        for kind, value in zip(kernels[launch.kernel], launch.args, strict=True):
            if isinstance(value, np.ndarray):
                read += value.nbytes if kind.startswith("const ") else 0
                written += 0 if kind.startswith("const ") else value.nbytes
    return read, written


@pytest.mark.slow
@on_the_emulator
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_cost_is_that_of_the_launches(case: Case) -> None:
    """As many launches, and the bytes of all arrays that they are given, each launch by itself."""
    problem_of(case)
    cost, launches = MECHANISMS[case.mechanism].cost(case), emulated(case)
    assert cost.launches == len(launches)
    read, written = bytes_moved(case, launches)
    parts = len(launches) // KERNELS_OF_A_PART.get(case.mechanism, len(launches))
    assert read % parts == written % parts == 0
    if case.mechanism in READ_IN_PART:
        assert cost.bytes_read <= (read + written) // parts
    else:
        assert cost.bytes_read == read // parts
    if case.variant == "bucketed":
        assert cost.bytes_written <= written
    else:
        assert cost.bytes_written == written // parts


@on_the_emulator
@pytest.mark.parametrize("name", MECHANISMS)
def test_the_emulator_never_serves_a_time(name: str) -> None:
    mechanism = MECHANISMS[name]
    case = registry.cases(mechanism, "test", backends=["cuda"])[0]
    with pytest.raises(UnavailableError, match=available("cuda").split("(")[0]):
        measure_pair(mechanism, case, case, 0.1, np.random.default_rng(0))


@pytest.mark.parametrize("name", MECHANISMS)
def test_some_case_of_every_variant_is_supported(name: str) -> None:
    mechanism = MECHANISMS[name]
    for kind in ("test", "bench"):
        found = registry.cases(mechanism, kind, backends=["cuda"])
        supported = {case.variant for case in found if not mechanism.supports(case)}
        assert supported == {case.variant for case in found}, f"no {kind} size fits"


def test_a_gpu_has_bench_sizes_of_its_own() -> None:
    tiling = MECHANISMS["tiling"]
    sizes = {
        backend: {case.sizes for case in registry.cases(tiling, "bench", backends=[backend])}
        for backend in ("cpu", "cuda")
    }
    assert sizes["cpu"] == {tuple(size.items()) for size in tiling.bench_sizes}
    assert sizes["cuda"] == {tuple(size.items()) for size in tiling.gpu_bench_sizes}
