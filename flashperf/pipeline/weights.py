"""Weights on disk and in memory: safetensors in plain NumPy, and random weights of any shape.

The `safetensors` package can't hand bfloat16 to NumPy without another package, and the format is small
(https://github.com/huggingface/safetensors): a little-endian u64, the length of a JSON header; the header,
name -> {dtype, shape, data_offsets}; then the tensors, row-major, at those offsets from the header's end.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from flashperf.dtypes import from_bf16
from flashperf.pipeline.config import ModelConfig

# NumPy has no bfloat16: BF16 tensors are uint16 arrays of the bit patterns, and uint16 is written as BF16.
_NUMPY_TYPES: dict[str, type[np.generic]] = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": np.uint16,
    "I64": np.int64,
    "I32": np.int32,
    "I8": np.int8,
    "U8": np.uint8,
}
_NAMES = {np.dtype(kind): name for name, kind in _NUMPY_TYPES.items()}
_LARGEST_HEADER_BYTES = 100_000_000  # the format's own limit


def small_weights_path() -> Path:
    """Where the committed weights of the trained model are."""
    return Path(__file__).with_name("data") / "small.safetensors"


def load_weights(path: str | Path, config: ModelConfig | None = None) -> dict[str, np.ndarray]:
    """The tensors of a safetensors file, float32, C-contiguous.

    Raises ValueError if the file is malformed or, with `config`, if names or shapes aren't the model's.
    """
    weights = {name: _as_f32(name, array) for name, array in read_safetensors(path).items()}
    if config is not None:
        check_shapes(weights, config)
    return weights


def random_weights(config: ModelConfig, seed: int = 0) -> dict[str, np.ndarray]:
    """Weights float32 of the shape `config`: normal with deviation 1/sqrt(fan in), norms 1.

    The scale keeps activations near 1 at every width. The same seed gives the same weights.
    """
    generator = np.random.Generator(np.random.PCG64(seed))
    weights: dict[str, np.ndarray] = {}
    for name, shape in config.shapes().items():
        if len(shape) == 1:
            weights[name] = np.ones(shape, np.float32)
            continue
        fan_in = config.dim if name == "embed" else shape[0]
        weights[name] = generator.standard_normal(shape, dtype=np.float32)
        weights[name] *= np.float32(1 / math.sqrt(fan_in))
    return weights


def check_shapes(weights: Mapping[str, np.ndarray], config: ModelConfig) -> None:
    """Raises ValueError, naming the first difference, unless `weights` are those of `config`."""
    expected = config.shapes()
    missing, extra = sorted(expected.keys() - weights.keys()), sorted(weights.keys() - expected.keys())
    if missing or extra:
        raise ValueError(f"not the weights of {config.name!r}: missing {missing[:3]}, unknown {extra[:3]}")
    for name, shape in expected.items():
        if weights[name].shape != shape:
            raise ValueError(f"{name} has shape {weights[name].shape}; {config.name!r} needs {shape}")


def write_safetensors(
    path: str | Path, tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None
) -> None:
    """Write `tensors` (bfloat16 as uint16) in the order given, through a temporary file beside `path`.

    Equal arguments give equal bytes. Raises ValueError for an element type that the format lacks.
    """
    header: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    start = 0
    for name, array in tensors.items():
        if array.dtype not in _NAMES:
            raise ValueError(f"{name}: safetensors has no dtype for {array.dtype}")
        header[name] = {
            "dtype": _NAMES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [start, start + array.nbytes],
        }
        start += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # tensors start on a multiple of 8 bytes
    partial = Path(path).with_suffix(".partial")
    with partial.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in tensors.values():
            file.write(np.ascontiguousarray(array).tobytes())
    partial.replace(path)


def read_safetensors(path: str | Path) -> dict[str, np.ndarray]:
    """The tensors of a safetensors file by name, in the file's order; bfloat16 as uint16 bit patterns.

    Raises ValueError, naming the file and the fault, if it is truncated, corrupt or of an unknown dtype.
    """
    raw = Path(path).read_bytes()
    header, body = _split(raw, Path(path).name)
    tensors: dict[str, np.ndarray] = {}
    expected_start = 0
    for name, entry in sorted(header.items(), key=lambda item: _offsets(item[1])):
        try:
            tensors[name], expected_start = _tensor(entry, body, expected_start)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{Path(path).name}: tensor {name!r}: {error}") from error
    if expected_start != len(body):
        raise ValueError(f"{Path(path).name}: {len(body) - expected_start} bytes belong to no tensor")
    return tensors


def _split(raw: bytes, file: str) -> tuple[dict[str, dict], bytes]:
    """The header without its metadata, and the bytes after it."""
    if len(raw) < 8:
        raise ValueError(f"{file}: {len(raw)} bytes; a safetensors file starts with an 8-byte length")
    length = int.from_bytes(raw[:8], "little")
    if length > min(len(raw) - 8, _LARGEST_HEADER_BYTES):
        raise ValueError(f"{file}: truncated, or no safetensors file: a header of {length} bytes")
    try:
        header = json.loads(raw[8 : 8 + length])
    except ValueError as error:
        raise ValueError(f"{file}: the header is no JSON: {error}") from error
    if not isinstance(header, dict):
        raise ValueError(f"{file}: the header is no JSON object")
    header.pop("__metadata__", None)
    return header, raw[8 + length :]


def _offsets(entry: object) -> tuple[int, ...]:
    """Sort key; a malformed entry sorts first and is reported by `_tensor`."""
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    if not isinstance(offsets, list) or not all(isinstance(offset, int) for offset in offsets):
        return ()
    return tuple(offsets)


def _tensor(entry: dict, body: bytes, expected_start: int) -> tuple[np.ndarray, int]:
    """The array of one header entry, and where the next must start: there are no gaps or overlaps."""
    if not isinstance(entry, dict) or not {"dtype", "shape", "data_offsets"} <= entry.keys():
        raise ValueError("the entry needs dtype, shape and data_offsets")
    if entry["dtype"] not in _NUMPY_TYPES:
        raise ValueError(f"unknown dtype {entry['dtype']!r}; known: {', '.join(_NUMPY_TYPES)}")
    shape = entry["shape"]
    if not isinstance(shape, list) or not all(isinstance(size, int) and size >= 0 for size in shape):
        raise ValueError(f"invalid shape {shape!r}")
    kind = np.dtype(_NUMPY_TYPES[entry["dtype"]]).newbyteorder("<")
    start, end = entry["data_offsets"]
    if start != expected_start or end - start != math.prod(shape) * kind.itemsize:
        raise ValueError(f"offsets {start} to {end} don't fit {shape} {kind.name} from {expected_start} on")
    if end > len(body):
        raise ValueError(f"truncated: ends at byte {end} of {len(body)}")
    return np.frombuffer(body[start:end], kind).reshape(shape).copy(), end


def _as_f32(name: str, array: np.ndarray) -> np.ndarray:
    if array.dtype == np.uint16:
        return from_bf16(array)
    if array.dtype.kind != "f":
        raise ValueError(f"weight {name} has dtype {array.dtype}, not a float type")
    return array.astype(np.float32)
