"""No kernel touches memory beside its arrays: every one runs with a forbidden page on either side of each.

A stray access ends the process, so each instruction-set level runs in a process of its own, which says what
it is about to run.
"""

from __future__ import annotations

import ctypes
import mmap
import re
import subprocess
import sys

import numpy as np
import pytest

from flashperf import native
from flashperf.dtypes import NUMPY_TYPES
from flashperf.signature import evaluate

pytestmark = pytest.mark.slow  # every kernel of every level, a process each

PAGE = mmap.PAGESIZE
PROT_NONE = 0
#: Values of the dimensions, by turns: ones, less than a vector, one beside a vector, more than a tile, whole AMX tiles.
SIZES = ((1,), (2, 3, 5, 7), (17, 9, 33, 15), (66, 50, 18, 34), (32, 37, 64, 45))
_libc = ctypes.CDLL(None, use_errno=True)


def fenced(shape: tuple[int, ...], dtype: str, at_end: bool) -> np.ndarray:
    """A zeroed array that ends at a forbidden page, or begins right after one."""
    n_bytes = int(np.prod(shape)) * NUMPY_TYPES[dtype].itemsize
    pages = -(-n_bytes // PAGE)
    region = mmap.mmap(-1, (pages + 2) * PAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(region))
    for forbidden in (start, start + (pages + 1) * PAGE):
        if _libc.mprotect(ctypes.c_void_p(forbidden), ctypes.c_size_t(PAGE), PROT_NONE):
            raise OSError(ctypes.get_errno(), "mprotect")
    offset = PAGE + (pages * PAGE - n_bytes if at_end else 0)
    return np.frombuffer(region, np.uint8, n_bytes, offset).view(NUMPY_TYPES[dtype]).reshape(shape)


def dimensions(signature: native.Signature, sizes: tuple[int, ...]) -> dict[str, int]:
    """A value for every dimension that the signature names."""
    names = [name for a in signature.arrays for d in a.dims for name in re.findall(r"[a-z_]\w*", d)]
    values = {name: sizes[i % len(sizes)] for i, name in enumerate(dict.fromkeys(names))}
    if signature.kernel.startswith("rope_append"):  # w = 3 * heads * e, e even: more than the grammar can say
        values["e"] += values["e"] % 2
        values["w"] = 3 * values["heads"] * values["e"]
    return values


def shape_of(dims: tuple[str, ...], values: dict[str, int]) -> tuple[int, ...]:
    return tuple(values[d] if d in values else evaluate(d, values) for d in dims)


def run_all(level: str) -> None:
    """Run every kernel of a level at every size, its arrays at both ends of their pages."""
    library = native.library(level)
    for kernel, signature in library.signatures.items():
        for sizes in SIZES:
            values = dimensions(signature, sizes)
            for at_end in (False, True):
                print(kernel, sizes, "at the end" if at_end else "at the start", flush=True)
                arrays = [fenced(shape_of(a.dims, values), a.dtype, at_end) for a in signature.arrays]
                for argument, array in zip(signature.arrays, arrays, strict=True):
                    if argument.name in ("position", "extent"):  # as many keys as there are
                        array[...] = values["t"] - (argument.name == "position")
                inferred = {d for a in signature.arrays for d in a.dims}
                scalars = {n: values.get(n, 1) for n, _ in signature.scalars if n not in inferred}
                library.prepare(kernel, *arrays, **scalars)()


@pytest.mark.parametrize("level", native.usable_levels())
def test_no_kernel_leaves_its_arrays(level: str) -> None:
    process = subprocess.run([sys.executable, __file__, level], capture_output=True, text=True, timeout=120)
    last = (process.stdout.splitlines() or ["nothing"])[-1]
    assert process.returncode == 0, (
        f"{level}: ended in {last} ({process.returncode}): {process.stderr[-2000:]}"
    )


def test_a_stray_access_would_end_the_process() -> None:
    code = (
        "from test_guard_pages import fenced; import ctypes;"
        "a = fenced((5,), 'f32', True); ctypes.string_at(a.ctypes.data, 20); print('in bounds', flush=True);"
        "ctypes.string_at(a.ctypes.data, 21)"
    )
    folder = __file__.rpartition("/")[0]
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=folder)
    assert process.stdout == "in bounds\n"
    assert process.returncode < 0


if __name__ == "__main__":
    run_all(sys.argv[1])
