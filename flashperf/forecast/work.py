"""What one planned call of the pipeline has to do: operations and bytes, from its kernel's name and its arrays.

Bytes are those of its arrays, each once; of a cache and of scores the part that is looked at on average, of a table
the rows that are taken. Operations are those of products; what stands around them counts a few per element.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flashperf.pipeline.engine import PlannedCall

_PER_ELEMENT_FLOPS = 5
_SCORES = ("attention_", "scores_", "add_mask", "softmax_extent")
_FORMATS = ("i8", "w8", "bf16", "f16")


@dataclass(frozen=True)
class Work:
    """Of one call. ``number_format``: the one in which it multiplies."""

    flops: int
    bytes: int
    number_format: str


def format_of(kernel: str) -> str:
    """The format of a kernel's products; weights of 8 bits alone (w8) are multiplied as f32."""
    found = next((name for name in _FORMATS if f"_{name}" in kernel), "f32")
    return "f32" if found == "w8" else found


def work_of(call: PlannedCall, seen: float) -> Work:
    """``seen``: the part of the caches that a row looks at, on average over the run."""
    return Work(_flops(call, seen), _bytes(call, seen), format_of(call.kernel))


def _flops(call: PlannedCall, seen: float) -> int:
    kernel, arrays = call.kernel, call.arrays
    first, last = arrays[0].shape, arrays[-1].shape
    if kernel.startswith("mlp_over"):
        rows, dim = first
        return 6 * rows * dim * int(call.scalars.get("f", arrays[1].size // dim))
    if kernel.startswith("gemm_"):
        products = 2 if "swiglu" in kernel else 1
        return products * 2 * first[0] * first[1] * last[1]
    if kernel.startswith("attention_"):
        cache = next(array.shape for array in arrays if array.ndim == 4)
        rows = last[0] if "values" in kernel or "online" in kernel else first[0]
        products = 2 if "online" in kernel else 1
        return int(products * 2 * rows * cache[1] * cache[3] * cache[2] * seen)
    return _PER_ELEMENT_FLOPS * int(arrays[-1].size)


def _bytes(call: PlannedCall, seen: float) -> int:
    kernel, arrays = call.kernel, call.arrays
    if kernel.startswith(("embed_", "take_rows_")):
        return 2 * int(arrays[-1].nbytes)
    if kernel.startswith(
        "rope_append_"
    ):  # queries, keys and values come together; keys and values go to the caches
        return 2 * int(arrays[0].nbytes)
    t = next((array.shape[2] for array in arrays if array.ndim == 4), arrays[0].shape[-1])
    return int(sum(array.nbytes * _part(kernel, array, t, seen) for array in arrays))


def _part(kernel: str, array: Any, t: int, seen: float) -> float:
    """How much of an array is touched."""
    by_key = array.ndim == 4 or (array.ndim == 3 and array.shape[-1] == t)
    return seen if by_key and kernel.startswith(_SCORES) else 1.0
