"""A case made ready to be judged: inputs, float64 reference, fresh buffers, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from flashperf import registry
from flashperf.check import check_outputs
from flashperf.dtypes import NUMPY_TYPES, aligned_empty, from_bf16, poison
from flashperf.errors import EXIT_FAILED, UserError
from flashperf.native import PrepareError
from flashperf.records import Arrays, ArraySpec, Case, Check, Cost, Mechanism
from flashperf.suggest import unknown_name


class CaseError(UserError):
    """A case or its inputs are not fit to be measured: a size, a variant, NaN in the inputs."""


class UnavailableError(UserError):
    """The case can't run on this machine; the message says why."""


class WrongResult(UserError):  # noqa: N818 - it is a verdict on a kernel
    """A kernel whose output is wrong: it was not timed.

    ``check`` has the worst index, the error and the limit.
    """

    def __init__(self, who: str, check: Check) -> None:
        super().__init__(f"{who}: wrong result, not timed: {check.reason}", EXIT_FAILED)
        self.who, self.check = who, check


_SECOND_POISON_BYTE = 0x5A  # far from -1: an integer output left unwritten can't pass under both


@runtime_checkable
class DeviceCall(Protocol):
    """A call whose arrays have copies on a device: what a backend other than the CPU binds."""

    def __call__(self) -> None:
        """Do the work, or enqueue it; the host's arrays are left as they are."""

    def upload(self) -> None:
        """Copy the host's outputs to the device: that is how poison gets there."""

    def collect(self) -> None:
        """Wait for the work and copy outputs and inputs back to the host's arrays."""


def aligned_like(array: np.ndarray) -> np.ndarray:
    """A 64-byte aligned copy of an array of any dtype."""
    raw = aligned_empty((array.nbytes,), "u8")
    copy = raw.view(array.dtype).reshape(array.shape) if array.nbytes else np.empty_like(array)
    copy[...] = array
    return copy


@dataclass(frozen=True)
class Problem:
    """A case with what it is judged by: pristine inputs, the float64 reference, tolerance and cost."""

    mechanism: Mechanism
    case: Case
    inputs: Arrays
    specs: dict[str, ArraySpec]
    reference: Arrays

    @property
    def cost(self) -> Cost:
        return self.mechanism.cost(self.case)

    def bind(self) -> tuple[Callable[[], None], Arrays, Arrays]:
        """Fresh inputs, fresh poisoned outputs (all 64-byte aligned), and the call bound to them."""
        inputs = {name: aligned_like(array) for name, array in self.inputs.items()}
        outputs = {name: aligned_empty(spec.shape, spec.dtype) for name, spec in self.specs.items()}
        try:
            call = self.mechanism.bind[self.case.backend](self.case, inputs, outputs)
        except PrepareError as error:
            raise CaseError(f"{self.case.id}: {error}") from error
        self.poison(call, outputs)  # after binding: work done there must not pass for the call's
        return call, inputs, outputs

    def poison(self, call: Callable[[], None], outputs: Arrays, *, again: bool = False) -> None:
        """Fill the outputs with what no kernel writes, on the device too; ``again`` differently in integers."""
        for name, array in outputs.items():
            if again and self.specs[name].dtype.startswith(("i", "u")):
                array.view(np.uint8)[...] = _SECOND_POISON_BYTE
            else:
                poison(array)
        if isinstance(call, DeviceCall):
            call.upload()

    def check(self, call: Callable[[], None], inputs: Arrays, outputs: Arrays) -> Check:
        """Judge the outputs of a call, and that it left its inputs as they were. Raises WrongResult."""
        if isinstance(call, DeviceCall):
            call.collect()
        check = check_outputs(self.specs, outputs, self.reference, self.mechanism.tolerance(self.case))
        for name, before in self.inputs.items():
            changed = _first_difference(before, inputs[name])
            if check.passed and changed is not None:
                reason = f"the call changed its input {name} at {list(changed)}"
                check = Check(False, 0.0, 0.0, 0.0, changed, 0.0, reason, name)
        if not check.passed:
            raise WrongResult(self.case.id, check)
        return check


def _first_difference(before: np.ndarray, after: np.ndarray) -> tuple[int, ...] | None:
    if before.shape != after.shape or before.dtype != after.dtype:
        return ()
    item = np.dtype((np.void, before.itemsize))
    different = np.ascontiguousarray(before).view(item) != np.ascontiguousarray(after).view(item)
    if not different.any():
        return None
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(different)), before.shape))


def load_problem(mechanism: Mechanism, case: Case, *, emulated: bool = False) -> Problem:
    """Make a case's inputs and reference.

    ``emulated`` lets a backend that isn't here be stood in for (CUDA by the emulator, Triton by its interpreter):
    for a check and never for a time.

    Raises CaseError for a variant, backend, dtype or size that the mechanism doesn't have and for inputs
    with NaN, Inf, no elements or gaps; UnavailableError if the case can't run on this machine.
    """
    _check_case(mechanism, case)
    missing = mechanism.supports(case) if emulated else registry.why_not(mechanism, case)
    if missing:
        raise UnavailableError(f"{case.id}: {missing}")
    inputs = mechanism.make_inputs(case)
    for name, array in inputs.items():
        _check_input(case, name, array)
    reference = mechanism.reference(case, {name: array.copy() for name, array in inputs.items()})
    return Problem(mechanism, case, inputs, mechanism.outputs(case), reference)


def _check_case(mechanism: Mechanism, case: Case) -> None:
    if case.mechanism != mechanism.name:
        raise CaseError(f"{case.id} is a case of {case.mechanism!r}, not of {mechanism.name!r}")
    if case.variant not in mechanism.variants:
        raise CaseError(unknown_name(f"variant of {mechanism.name}", case.variant, mechanism.variants))
    if case.backend not in mechanism.variants[case.variant]:
        backends = mechanism.variants[case.variant]
        raise CaseError(unknown_name(f"backend of {mechanism.name}/{case.variant}", case.backend, backends))
    if case.dtype not in mechanism.dtypes:
        raise CaseError(unknown_name(f"dtype of {mechanism.name}", case.dtype, mechanism.dtypes))
    every = (*mechanism.test_sizes, *mechanism.bench_sizes, *mechanism.gpu_bench_sizes)
    declared = [sizes.keys() for sizes in every]
    given = dict(case.sizes)
    if given.keys() not in declared:
        needed = " or ".join(dict.fromkeys(", ".join(names) for names in declared))
        got = ", ".join(given) or "none"
        raise CaseError(f"{case.id}: sizes of {mechanism.name} are {needed}, got {got}")
    for name, value in given.items():
        if isinstance(value, int) and value < 1:
            raise CaseError(f"{case.id}: size {name} is {value}, must be at least 1")


def _check_input(case: Case, name: str, array: np.ndarray) -> None:
    if not isinstance(array, np.ndarray):
        raise CaseError(f"{case.id}: input {name} is a {type(array).__name__}, not a NumPy array")
    if array.size == 0:
        raise CaseError(f"{case.id}: input {name} has no elements: shape {array.shape}")
    if not array.flags.c_contiguous:
        raise CaseError(
            f"{case.id}: input {name} is not C-contiguous: shape {array.shape}, strides {array.strides}"
        )
    values = from_bf16(array) if array.dtype == NUMPY_TYPES["bf16"] else array
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        where = [int(i) for i in np.unravel_index(int(np.argmin(np.isfinite(values))), values.shape)]
        value = values[tuple(where)]
        raise CaseError(f"{case.id}: input {name} is {value} at {where}; inputs must be finite")
