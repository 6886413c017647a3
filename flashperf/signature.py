"""A kernel's signature: parsed from its FP_KERNEL line, held against arguments, and what does not fit in words."""

from __future__ import annotations

import functools
import math
import numbers
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from flashperf import _native
from flashperf.dtypes import NUMPY_TYPES

_LARGEST_F32 = float(np.finfo(np.float32).max)


class PrepareError(ValueError):
    """Arguments that do not fit a kernel's signature; nothing was run."""


@dataclass(frozen=True)
class _Argument:
    name: str
    dims: tuple[str, ...]
    dtype: str
    written: bool

    @functools.cached_property
    def kind(self) -> np.dtype:
        """What NumPy calls the type of its elements."""
        return NUMPY_TYPES[self.dtype]

    @functools.cached_property
    def sizes(self) -> tuple[tuple[int, str, bool], ...]:
        """(axis, dimension, whether it is a name and not derived from others) of every axis."""
        return tuple((axis, dim, dim.isidentifier()) for axis, dim in enumerate(self.dims))


@dataclass(frozen=True)
class Signature:
    """A kernel's arguments as its FP_KERNEL line declares them."""

    kernel: str
    arrays: tuple[_Argument, ...]
    scalars: tuple[tuple[str, str], ...]  # (name, "i64" or "f32")

    @staticmethod
    def parse(kernel: str, text: str, types: str) -> Signature:
        """Join the signature text with the C++ types; a mismatch is a fault of the kernel file."""
        arrays_text, _, scalars_text = text.partition(";")
        inputs, _, outputs = arrays_text.partition("->")
        declared = [(m, False) for m in re.finditer(r"(~?)(\w+)\[([^\]]*)\]", inputs)]
        declared += [(m, True) for m in re.finditer(r"(~?)(\w+)\[([^\]]*)\]", outputs)]
        names, kinds = scalars_text.split(), types.split(",")
        if len(kinds) != len(declared) + len(names):
            raise RuntimeError(f"kernel {kernel}: {len(kinds)} C++ arguments, but its signature is {text!r}")
        arrays = []
        for (match, is_output), kind in zip(declared, kinds, strict=False):
            written = is_output or match.group(1) == "~"
            if not kind.endswith("*") or written == kind.startswith("const "):
                raise RuntimeError(f"kernel {kernel}: argument {match.group(2)} is {kind} in C++")
            dtype = kind.removeprefix("const ").rstrip("*")
            dims = tuple(d.strip() for d in match.group(3).split(","))
            arrays.append(_Argument(match.group(2), dims, dtype, written))
        return Signature(kernel, tuple(arrays), tuple(zip(names, kinds[len(declared) :], strict=True)))

    def dimensions(self, arrays: tuple[np.ndarray, ...], given: Mapping[str, float]) -> dict[str, int]:
        """Infer every dimension from the arrays, and check that all of them agree.

        A dimension that no array has by itself (``f`` where only ``f/32`` occurs) must be among the ``given``.
        """
        values = {name: self._size(name, value) for name, value in given.items() if name in self._dims}
        derived = []
        for argument, array in zip(self.arrays, arrays, strict=True):
            shape = array.shape
            if len(shape) != len(argument.dims):
                raise self._error(argument, f"has shape {shape}, needs [{','.join(argument.dims)}]")
            for axis, dim, named in argument.sizes:
                size = shape[axis]
                if size == 0:
                    raise self._error(argument, f"has a zero size: shape {shape}")
                if not named:
                    derived.append((argument, axis, dim, size))
                elif values.setdefault(dim, size) != size:
                    raise self._error(argument, f"has {dim}={size}, but {dim}={values[dim]} elsewhere")
        if len(values) < len(self._dims):
            raise PrepareError(f"{self.kernel}: needs {', '.join(sorted(self._dims - set(values)))}")
        for argument, axis, dim, size in derived:
            needed = evaluate(dim, values)
            if size != needed:
                raise self._error(argument, f"has size {size} on axis {axis}, needs {dim} = {needed}")
        return values

    def compiled(self) -> _native.Signature:
        """The signature as the quick way of binding wants it."""
        names = sorted(self._dims)

        def term(value: int | str) -> tuple[bool, int]:
            return (False, value) if isinstance(value, int) else (True, names.index(value))

        arguments = []
        for argument in self.arrays:
            parts = [_terms(dim) for dim in argument.dims]
            dims = [(*term(left), operator, *term(right)) for left, operator, right in parts]
            arguments.append((argument.kind.num, argument.written, dims))
        scalars = [(name, kind.startswith("i")) for name, kind in self.scalars]
        return _native.Signature(names, arguments, scalars)

    @functools.cached_property
    def _dims(self) -> frozenset[str]:
        """Every name that the shapes are made of."""
        text = " ".join(dim for argument in self.arrays for dim in argument.dims)
        return frozenset(re.findall(r"[a-z_]\w*", text))

    @functools.cached_property
    def scalar_names(self) -> frozenset[str]:
        """What can be set by name."""
        return frozenset(name for name, _ in self.scalars)

    def _size(self, name: str, value: Any) -> int:
        """A dimension that was given, as a positive integer."""
        size = _integer(self.kernel, name, _plain(value))
        if size < 1:
            raise PrepareError(f"{self.kernel}: dimension {name} is {size}, must be at least 1")
        return size

    def values(self, known: Mapping[str, Any]) -> list[int | float]:
        """The scalars in order, each as the type that the kernel takes; nothing is rounded or cut off."""
        return [
            (_integer if kind.startswith("i") else _number)(self.kernel, name, _plain(known[name]))
            for name, kind in self.scalars
        ]

    def _error(self, argument: _Argument, what: str) -> PrepareError:
        return PrepareError(f"{self.kernel}: {argument.name} {what}")

    def check_arrays(self, arrays: tuple[Any, ...]) -> list[int]:
        """Type, dtype, layout, alignment, writability and overlap of every array; returns their addresses."""
        if len(arrays) != len(self.arrays):
            names = ", ".join(a.name for a in self.arrays)
            raise PrepareError(f"{self.kernel}: takes {len(self.arrays)} arrays ({names}), got {len(arrays)}")
        for argument, array in zip(self.arrays, arrays, strict=True):
            if not isinstance(array, np.ndarray):
                raise self._error(argument, f"is a {type(array).__name__}, needs a NumPy array")
            if array.dtype != argument.kind:
                needed = argument.kind
                raise self._error(argument, f"has dtype {array.dtype}, needs {argument.dtype} ({needed})")
            flags = array.flags
            if not flags.c_contiguous:
                raise self._error(argument, "is not C-contiguous")
            if argument.written and not flags.writeable:
                raise self._error(argument, "is read-only, but the kernel writes it")
        begins = _native.addresses(arrays)
        for argument, array, begin in zip(self.arrays, arrays, begins, strict=True):
            if begin % array.itemsize:
                raise self._error(argument, f"is not aligned to {array.itemsize} bytes")
        ends = [begin + array.nbytes for begin, array in zip(begins, arrays, strict=True)]
        for i, writer in enumerate(self.arrays):
            if writer.written:
                for j, other in enumerate(self.arrays):
                    if i != j and begins[i] < ends[j] and begins[j] < ends[i]:
                        raise self._error(writer, f"overlaps {other.name} in memory")
        return begins


def _plain(value: Any) -> Any:
    """The one value of an array without dimensions; anything else as it is."""
    return value[()] if isinstance(value, np.ndarray) and value.ndim == 0 else value


def _number(kernel: str, name: str, value: Any) -> float:
    """A scalar as a float; Inf and NaN are floats too."""
    if not isinstance(value, numbers.Real | np.bool_):
        raise PrepareError(f"{kernel}: scalar {name} is a {type(value).__name__}, needs a number")
    try:
        real = float(value)
    except OverflowError:
        raise PrepareError(f"{kernel}: scalar {name} does not fit a float of 32 bits") from None
    if _LARGEST_F32 < abs(real) < math.inf:
        raise PrepareError(f"{kernel}: scalar {name} does not fit a float of 32 bits")
    return real


def _integer(kernel: str, name: str, value: Any) -> int:
    """A scalar as an integer of 64 bits; a float only if it is whole."""
    if type(value) is int:
        whole = value
    elif isinstance(value, numbers.Integral):
        whole = int(value)
    else:
        real = _number(kernel, name, value)
        if not real.is_integer():  # nor is NaN or Inf
            raise PrepareError(f"{kernel}: scalar {name} is {real:g}, needs an integer")
        whole = int(real)
    if not -(2**63) <= whole < 2**63:
        raise PrepareError(f"{kernel}: scalar {name} does not fit a 64-bit integer")
    return whole


def evaluate(dim: str, values: Mapping[str, int]) -> int:
    """A derived dimension: a number, ``n/32`` (rounded up), ``3*d`` or ``b+1``."""
    left, operator, right = _terms(dim)
    first = left if isinstance(left, int) else values[left]
    second = right if isinstance(right, int) else values[right]
    if operator == "/":
        return -(-first // second)
    return first * second if operator == "*" else first + second


@functools.cache
def _terms(dim: str) -> tuple[int | str, str, int | str]:
    """A derived dimension in its parts; a number alone is it plus zero."""
    match = re.fullmatch(r"(\w+)(?:([*/+])(\w+))?", dim)
    if not match:
        raise RuntimeError(f"cannot read dimension {dim!r}")
    left, operator, right = match.group(1), match.group(2) or "+", match.group(3) or "0"
    return (int(left) if left.isdigit() else left), operator, (int(right) if right.isdigit() else right)
