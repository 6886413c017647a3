"""What the modules of the pipeline's launches share: a launch with its file, sizes, packed weights as matrices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from flashperf.emulator import Launch


class Step(NamedTuple):
    """A launch and the ``.cu`` file that its kernel is in."""

    module: str
    launch: Launch


Arrays = Sequence[Any]
#: A kernel's arrays and scalars -> what is launched.
Builder = Callable[[Arrays, Mapping[str, float]], list[Step]]


def i32(*sizes: int) -> tuple[np.int32, ...]:
    """Sizes as the kernels' int."""
    return tuple(np.int32(size) for size in sizes)


def as_matrix(packed: Any, rows: int, columns: int) -> Any:
    """The row-major matrix that the memory of a packed weight begins with."""
    return packed.reshape(-1)[: rows * columns].reshape(rows, columns)


def wide_suffix(*row_bytes: int) -> str:
    """The suffix of kernels that take rows of any size, if some row isn't a multiple of 16 bytes."""
    return "_any_size" if any(n % 16 for n in row_bytes) else ""
