"""One user callable with buffers of its own: how it is called, what it gives, and where that is stored."""

from __future__ import annotations

import copy
import functools
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flashperf.comparing import arrays
from flashperf.errors import EXIT_FAILED, UserError
from flashperf.problem import CaseError


@dataclass
class Side:
    """A callable and its arguments: a tuple or list (positional), a mapping (by name), one array, or None.

    ``outputs`` names the arguments that a call writes: they are results too, and may change.
    """

    name: str
    function: Callable[..., Any]
    arguments: Any
    outputs: tuple[str, ...] = ()
    leaves: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.leaves = arrays.flatten(self.arguments)
        self._tracked = [leaf for leaf in self.leaves.values() if getattr(leaf, "requires_grad", False)]
        self._sync = arrays.synchroniser(self.leaves)

    def bound(self) -> Callable[[], Any]:
        """The call on these buffers, with as little as possible around it.

        It waits for the device if the inputs are on one, and drops the gradients of inputs that collect
        them, so that a backward pass writes them rather than adds to them.
        """
        call = self.function
        if isinstance(self.arguments, Mapping):
            call = functools.partial(call, **self.arguments)
        elif isinstance(self.arguments, tuple | list):
            call = functools.partial(call, *self.arguments)
        elif self.arguments is not None:
            call = functools.partial(call, self.arguments)
        tracked, sync = self._tracked, self._sync
        if not tracked and sync is None:
            return call

        def whole_call() -> Any:
            for leaf in tracked:
                leaf.grad = None
            result = call()
            if sync is not None:
                sync()
            return result

        return whole_call

    def guarded(self, call: Callable[[], Any]) -> Any:
        """``call()``, with what the callable raises as a UserError that names side, error and place."""
        try:
            return call()
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(frame.filename).name}, line {frame.lineno}"
            message = f"{self.name} raised {type(error).__name__}: {error} ({where})"
            raise UserError(message, EXIT_FAILED) from error

    def results(self) -> dict[str, Any]:
        """Call once; every array it gave: returned ones, out-parameters, gradients of the inputs.

        Raises UserError, with its place, for what the callable raises; CaseError if a result lies in the
        memory of an input that is not one of ``outputs``, or if there is no result.
        """
        found = arrays.flatten(self.guarded(self.bound()), "result")
        for name, value in found.items():
            for leaf_name, leaf in self.leaves.items():
                if leaf_name not in self.outputs and arrays.shares_memory(value, leaf):
                    raise CaseError(
                        f"{self.name} returns {name} in the memory of its input {leaf_name}: results need "
                        "new storage, and inputs that a call writes are named with outputs=(...)"
                    )
        found |= {f"output {name}": self.leaves[name] for name in self.outputs}
        for name, leaf in self.leaves.items():
            gradient = arrays.gradient(leaf)
            if gradient is not None:
                found[f"gradient of {name}"] = gradient
        if not found:
            raise CaseError(
                f"{self.name} returns no array; inputs that a call writes are named with outputs=(...)"
            )
        return found

    def results_after_poison(self) -> dict[str, Any]:
        """Copies of the results of a third call, after those of the first two were poisoned and freed.

        Elements left unwritten then show, whether the storage is new or one that the callable keeps (the
        second call gave it again). What it keeps gets its values back, for a call that doesn't write it.
        """
        first, second = self.results(), self.results()
        held = {
            name: (value, arrays.fresh(value))
            for name, value in second.items()
            if any(arrays.shares_memory(value, other) for other in first.values())
        }
        for results in (first, second):
            for name in results:
                arrays.poison(results[name])
        del first, second, results
        try:
            return {name: arrays.fresh(value) for name, value in self.results().items()}
        finally:
            for value, values_before in held.values():
                arrays.restore(value, values_before)


def in_double(function: Callable[..., Any]) -> Callable[..., Any]:
    """A torch module as a copy in float64; anything else as it is: it follows its inputs or it fails."""
    if hasattr(function, "double") and hasattr(function, "parameters"):
        module: Any = copy.deepcopy(function)
        return module.double()
    return function
