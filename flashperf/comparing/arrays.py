"""What a comparison needs to know about the arrays of NumPy, torch and CuPy.

Imports neither torch nor CuPy.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from flashperf.dtypes import NUMPY_TYPES

_COMPARED_BYTES = 1 << 20  # at once: copies of whole arrays cost more than the comparison
_SHORT_NAMES = {kind: name for name, kind in NUMPY_TYPES.items() if name != "bf16"}


def _is_torch(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _is_cupy(value: Any) -> bool:
    cupy = sys.modules.get("cupy")
    return cupy is not None and isinstance(value, cupy.ndarray)


def is_array(value: Any) -> bool:
    """Whether this is an array of NumPy, torch or CuPy, or a NumPy scalar."""
    return isinstance(value, np.ndarray | np.generic) or _is_torch(value) or _is_cupy(value)


def flatten(value: Any, name: str = "") -> dict[str, Any]:
    """The arrays in nested tuples, lists and mappings by their path: "0", "state.k".

    Python numbers count as arrays without a dimension; None and everything else is left out.
    """
    if is_array(value):
        return {name: value}
    if isinstance(value, float | complex) or (isinstance(value, int) and not isinstance(value, bool)):
        return {name: np.asarray(value)}
    if isinstance(value, Mapping):
        items = [(str(key), item) for key, item in value.items()]
    elif isinstance(value, tuple | list):
        items = [(str(key), item) for key, item in enumerate(value)]
    else:
        return {}
    found: dict[str, Any] = {}
    for key, item in items:
        found |= flatten(item, f"{name}.{key}" if name else key)
    return found


def map_arrays(value: Any, function: Callable[[Any], Any]) -> Any:
    """The same nesting with ``function`` applied to every array."""
    if is_array(value):
        return function(value)
    if isinstance(value, Mapping):
        return {key: map_arrays(item, function) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_arrays(item, function) for item in value))
    if isinstance(value, tuple | list):
        return type(value)(map_arrays(item, function) for item in value)
    return value


def fresh(array: Any) -> Any:
    """A copy in storage of its own; strides, device and ``requires_grad`` are kept."""
    if _is_torch(array):
        return array.detach().clone().requires_grad_(array.requires_grad)
    return copy.copy(array) if isinstance(array, np.generic) else array.copy(order="K")


def in_float64(array: Any) -> Any:
    """Floating values as float64 (complex ones as complex128); integers and bools as a copy."""
    if _is_torch(array):
        kind = "complex128" if array.is_complex() else "float64"
        floating = array.is_floating_point() or array.is_complex()
        wide = array.detach().to(getattr(sys.modules["torch"], kind)) if floating else array.detach()
        return wide.clone().requires_grad_(array.requires_grad)
    if array.dtype.kind not in "fc":
        return array.copy()
    return array.astype("complex128" if array.dtype.kind == "c" else "float64")


def gradient(array: Any) -> Any:
    """The gradient that a backward pass left on a tensor, or None."""
    return array.grad if _is_torch(array) and array.requires_grad else None


def drop_gradient(array: Any) -> None:
    """Forget the gradient, so that the next backward pass writes it rather than adds to it."""
    if _is_torch(array):
        array.grad = None


def to_numpy(array: Any) -> tuple[np.ndarray, str]:
    """Values on the host and their short dtype name; complex as pairs, bool as u8, types of 8 bits as f32."""
    if _is_torch(array):
        host = array.detach().cpu().resolve_conj()
        name = str(host.dtype).removeprefix("torch.")
        if name == "bfloat16":
            return host.contiguous().view(sys.modules["torch"].int16).numpy().view(np.uint16), "bf16"
        array = (host.float() if name.startswith("float8") else host).numpy()
    elif _is_cupy(array):
        array = array.get()
    values = np.asarray(array)
    if values.dtype.kind == "c":
        half = np.float32 if values.dtype.itemsize == 8 else np.float64
        values = np.ascontiguousarray(values).reshape(*values.shape, 1).view(half)
    if values.dtype == np.bool_:
        values = values.view(np.uint8)
    if values.dtype not in _SHORT_NAMES:
        values = values.astype(np.float64)
    return values, _SHORT_NAMES[values.dtype]


def poison(array: Any) -> None:
    """Fill with what can't be a result: NaN, or the largest integer. Memory that can't be written is left."""
    if _is_torch(array):
        torch = sys.modules["torch"]
        with torch.no_grad():
            kind = array.dtype
            floating = kind.is_floating_point or kind.is_complex
            array.detach().fill_(float("nan") if floating else kind == torch.bool or torch.iinfo(kind).max)
    elif _is_cupy(array) or (isinstance(array, np.ndarray) and array.flags.writeable):
        kind = array.dtype.kind
        nan = complex(np.nan, np.nan) if kind == "c" else np.nan
        array.fill(nan if kind in "fc" else True if kind == "b" else np.iinfo(array.dtype).max)


def memory(array: Any) -> tuple[int, int]:
    """Start and end address of the storage behind an array; (0, 0) for a NumPy scalar."""
    if _is_torch(array):
        storage = array.untyped_storage()
        return storage.data_ptr(), storage.data_ptr() + storage.nbytes()
    if _is_cupy(array):
        return array.data.mem.ptr, array.data.mem.ptr + array.data.mem.size
    if isinstance(array, np.generic):
        return 0, 0
    bounds = getattr(np.lib, "array_utils", np).byte_bounds  # moved in NumPy 2.0
    return bounds(array)


def shares_memory(a: Any, b: Any) -> bool:
    """Whether two arrays may use the same bytes."""
    (a_start, a_end), (b_start, b_end) = memory(a), memory(b)
    return a_start < b_end and b_start < a_end


def synchroniser(arrays: Mapping[str, Any]) -> Callable[[], None] | None:
    """What waits for the device that the arrays are on; None if all of them are on the host."""
    for array in arrays.values():
        if _is_torch(array) and array.device.type != "cpu":
            device = array.device
            return lambda: getattr(sys.modules["torch"], device.type).synchronize(device)
        if _is_cupy(array):
            return lambda: sys.modules["cupy"].cuda.Device().synchronize()
    return None


def restore(array: Any, values: Any) -> None:
    """Write ``values`` back into an array that was poisoned; what can't be written wasn't poisoned either."""
    if _is_torch(array):
        array.detach().copy_(values.detach())
    elif _is_cupy(array) or (isinstance(array, np.ndarray) and array.flags.writeable):
        array[...] = values


def same_bytes(a: Any, b: Any) -> bool:
    """Whether two arrays hold the same values bit for bit."""
    host_a, host_b = to_numpy(a)[0], to_numpy(b)[0]
    if host_a.shape != host_b.shape or host_a.dtype != host_b.dtype:
        return False
    bits_a, bits_b = (np.ascontiguousarray(host).reshape(-1).view(np.uint8) for host in (host_a, host_b))
    return all(
        np.array_equal(bits_a[start : start + _COMPARED_BYTES], bits_b[start : start + _COMPARED_BYTES])
        for start in range(0, bits_a.size, _COMPARED_BYTES)
    )
