"""Watches the memory accesses of Triton's interpreter: one outside the tensors of a launch is an error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import triton
import triton.runtime.interpreter as interpreter

from flashperf.kernels._launch import Launch


def interpreter_fault() -> str:
    """Empty, or why this Triton can't interpret the kernels."""
    versions = [tuple(int(n) for n in v.__version__.split(".")[:2]) for v in (triton, np)]
    if triton.knobs.runtime.interpret and versions[0] < (3, 7) and versions[1] >= (2, 4):
        return "Triton 3.6's interpreter fails on loops up to a run-time size with NumPy 2.4 and later"
    return ""


class OutOfBoundsError(AssertionError):
    """A kernel touched memory that isn't its own."""


class _Watch:
    def __init__(self) -> None:
        self.ranges: list[tuple[int, int]] = []
        self.accesses = 0

    def check(self, what: str, pointers: np.ndarray, mask: np.ndarray, itemsize: int) -> None:
        first = pointers[np.broadcast_to(mask, pointers.shape).astype(bool)].astype(np.uint64)
        self.accesses += first.size
        inside = np.zeros(first.shape, bool)
        for low, high in self.ranges:
            inside |= (first >= low) & (first + np.uint64(itemsize) <= high)
        if not inside.all():
            far = first[~inside]
            raise OutOfBoundsError(f"{far.size} elements {what} outside the tensors of the launch")


@contextmanager
def watched(launch: Launch) -> Iterator[_Watch]:
    """While one launch runs: every load, store and atomic of it must hit one of its tensors.

    Raises OutOfBoundsError (inside the interpreter's own error). The tensors must not lie back to back in memory.
    """
    watch = _Watch()
    for arg in launch.args:
        if isinstance(arg, torch.Tensor):
            watch.ranges.append((arg.data_ptr(), arg.data_ptr() + arg.numel() * arg.itemsize))
    original = interpreter._interpreter

    class Checked:
        """The module of native accesses, with each one looked at first."""

        def __getattr__(self, name: str) -> Any:
            return getattr(original, name)

        def load(self, pointers: Any, mask: Any, other: Any, dtype: Any) -> Any:
            watch.check("read", pointers, mask, np.dtype(dtype).itemsize)
            return original.load(pointers, mask, other, dtype)

        def store(self, pointers: Any, value: Any, mask: Any) -> Any:
            watch.check("written", pointers, mask, value.dtype.itemsize)
            return original.store(pointers, value, mask)

        def atomic_rmw(self, op: Any, pointers: Any, value: Any, mask: Any, sem: Any) -> Any:
            watch.check("updated", pointers, mask, value.dtype.itemsize)
            return original.atomic_rmw(op, pointers, value, mask, sem)

    interpreter._interpreter = Checked()
    try:
        yield watch
    finally:
        interpreter._interpreter = original
