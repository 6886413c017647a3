"""A variant as a list of native kernels: what it runs and what that costs, from one description."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from flashperf import native
from flashperf.dtypes import aligned_empty, itemsize
from flashperf.records import Arrays, ArraySpec, Cost


@dataclass(frozen=True)
class Pass:
    """One kernel launch.

    kernel:   its name on the CPU; what another backend launches is in its own module, launch by launch the same
    operands: its arrays by name in the order of its signature, results after "->", "~" before what it updates
    flops:    floating-point operations; exp, erf, a division and a square root count as one each
    flat:     whether the kernel sees its arrays as one row
    scalars:  its scalars by name
    touched:  bytes read or written of an operand that is not whole
    """

    kernel: str
    operands: str
    flops: int
    flat: bool = False
    scalars: Mapping[str, float] = field(default_factory=dict)
    touched: Mapping[str, int] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """The arrays in the order of the signature."""
        return self.operands.replace("->", " ").replace("~", "").split()

    @property
    def read(self) -> list[str]:
        """The arrays that are read."""
        return self.operands.partition("->")[0].replace("~", "").split()

    @property
    def written(self) -> list[str]:
        """The arrays that are written."""
        inputs, _, results = self.operands.partition("->")
        return [name[1:] for name in inputs.split() if name.startswith("~")] + results.split()


def size_bytes(spec: ArraySpec) -> int:
    """Bytes of one array."""
    return prod(spec.shape) * itemsize(spec.dtype)


def cost(passes: Sequence[Pass], specs: Mapping[str, ArraySpec]) -> Cost:
    """The unique bytes and the operations of each launch, summed."""
    return Cost(
        flops=sum(p.flops for p in passes),
        bytes_read=sum(p.touched.get(name, size_bytes(specs[name])) for p in passes for name in p.read),
        bytes_written=sum(p.touched.get(name, size_bytes(specs[name])) for p in passes for name in p.written),
        launches=len(passes),
    )


def bind(passes: Sequence[Pass], specs: Mapping[str, ArraySpec], arrays: Arrays) -> Callable[[], None]:
    """Prepare all launches on ``arrays``; what only ``specs`` has is a temporary, allocated here, once."""
    held = dict(arrays)
    for name in (name for p in passes for name in p.names if name not in held):
        held[name] = aligned_empty(specs[name].shape, specs[name].dtype)
    calls = []
    for p in passes:
        operands = [held[name].reshape(-1) if p.flat else held[name] for name in p.names]
        calls.append(native.prepare(p.kernel, *operands, **p.scalars))
    return calls[0] if len(calls) == 1 else native.Sequence(calls)
