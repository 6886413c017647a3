"""The contract of every Triton variant: right, every element written, inputs kept, no access out of bounds.

Without a GPU it runs in Triton's interpreter, on CPU tensors; on a GPU the same cases run there.
"""

from __future__ import annotations

import pytest

from flashperf import registry
from flashperf.backends import available
from flashperf.dtypes import NUMPY_TYPES
from flashperf.problem import Problem
from flashperf.records import Case

torch = pytest.importorskip("torch", reason="torch is not installed (pip install 'flashperf[triton]')")
triton = pytest.importorskip("triton", reason="triton is not installed (pip install 'flashperf[triton]')")

from triton_bounds import interpreter_fault, watched  # noqa: E402

from flashperf.kernels._launch import TritonCall  # noqa: E402

pytestmark = pytest.mark.skipif(bool(interpreter_fault()), reason=interpreter_fault() or "none")

MECHANISMS = {name: registry.mechanism(name) for name in registry.names()}
CASES = [
    (name, case)
    for name, mechanism in MECHANISMS.items()
    if "triton" in mechanism.bind
    for case in registry.cases(mechanism, "test", backends=["triton"])
]
INTERPRETED = bool(available("triton"))


def problem_of(name: str, case: Case) -> Problem:
    """The case with its inputs and reference, also where only the interpreter can run it."""
    mechanism = MECHANISMS[name]
    if reason := mechanism.supports(case):
        pytest.skip(reason)
    inputs = mechanism.make_inputs(case)
    reference = mechanism.reference(case, {key: array.copy() for key, array in inputs.items()})
    return Problem(mechanism, case, inputs, mechanism.outputs(case), reference)


def run(call: TritonCall) -> None:
    """A call whose accesses are watched where the interpreter makes them."""
    if not INTERPRETED:
        call()
        return
    for launch in call.launches:
        with watched(launch) as watch:
            launch.run()
        assert watch.accesses, "the launch touched nothing"


@pytest.mark.parametrize("name, case", CASES, ids=[case.id for _, case in CASES])
def test_case_is_right(name: str, case: Case) -> None:
    problem = problem_of(name, case)
    call, inputs, outputs = problem.bind()
    assert isinstance(call, TritonCall)
    run(call)
    problem.check(call, inputs, outputs)
    problem.poison(call, outputs, again=True)
    run(call)
    assert problem.check(call, inputs, outputs).passed
    for output, spec in problem.specs.items():
        assert outputs[output].dtype == NUMPY_TYPES[spec.dtype]
    assert len(call.launches) == problem.cost.launches, "as many launches as the cost says"
