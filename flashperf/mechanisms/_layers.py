"""What transfer and overlap share: products of several layers, and their weights copied to where they are read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flashperf import native
from flashperf.dtypes import aligned_empty
from flashperf.mechanisms._products import pack, product_tolerance
from flashperf.records import Arrays, ArraySpec, Case, Cost, Tolerance

TILE_BYTES = 64 << 10
STAND_IN = "a copy over a link between host and device"


def make_inputs(case: Case) -> Arrays:
    """x [m, k] and the weights of all layers w [layers, k, n], f32; products are of order 1."""
    rng = np.random.default_rng(case.seed)
    shape = (case["layers"], case["k"], case["n"])
    return {
        "x": rng.standard_normal((case["m"], case["k"]), np.float32),
        "w": rng.standard_normal(shape, np.float32) / np.float32(np.sqrt(case["k"])),
    }


def outputs(case: Case) -> dict[str, ArraySpec]:
    """y [layers, m, n], f32: every layer multiplies the same x."""
    return {"y": ArraySpec((case["layers"], case["m"], case["n"]), "f32")}


def reference(case: Case, inputs: Arrays) -> Arrays:
    """float64."""
    return {"y": inputs["x"].astype(np.float64) @ inputs["w"].astype(np.float64)}


def tolerance(case: Case) -> Tolerance:
    return product_tolerance(case["k"], "f32", "f32")


def weight_bytes(case: Case) -> int:
    """Bytes of one layer's weights as they are packed."""
    return 4 * -(-case["n"] // 32) * 32 * case["k"]


def cost(case: Case) -> Cost:
    """Products; where weights are copied in, each copy reads and writes them once more."""
    m, k, n, layers = (case[name] for name in ("m", "k", "n", "layers"))
    size = weight_bytes(case)
    work = Cost(2 * m * k * n, 4 * m * k + size, 4 * m * n)
    if case.variant != "resident":
        copies = -(-size // TILE_BYTES) if case.variant == "streamed_tiles" else 1
        work += Cost(0, size, size, bytes_transferred=size, launches=copies)
    return Cost(*(layers * getattr(work, name) for name in work.__dataclass_fields__))


def ideal_bytes(case: Case) -> int:
    """x and every weight read once, y written once."""
    m, k, n, layers = (case[name] for name in ("m", "k", "n", "layers"))
    return 4 * m * k + layers * (weight_bytes(case) + 4 * m * n)


@dataclass(frozen=True)
class Layer:
    """A layer's product, and the copies that bring its weights in (none where they stay)."""

    product: native.Call
    copies: tuple[native.Call, ...]


def bind_layers(
    case: Case, inputs: Arrays, y: np.ndarray, sets: int, tile_bytes: int | None = None
) -> list[Layer]:
    """Layers whose products read ``sets`` staging buffers in turn; 0: the weights themselves."""
    packed = [pack(np.ascontiguousarray(w), "f32") for w in inputs["w"]]
    staged = [aligned_empty(packed[0].shape, "f32") for _ in range(sets)]
    for buffer in staged:
        buffer[...] = 0  # its pages are there before anything is timed
    found = []
    for number, weight in enumerate(packed):
        read = staged[number % sets] if sets else weight
        copies = _copies(weight.reshape(-1), read.reshape(-1), tile_bytes) if sets else ()
        product = native.prepare("gemm_f32_packed", inputs["x"], read, y[number])
        found.append(Layer(product, copies))
    return found


def _copies(source: np.ndarray, staged: np.ndarray, tile_bytes: int | None) -> tuple[native.Call, ...]:
    step = source.size if tile_bytes is None else tile_bytes // 4
    parts = [slice(begin, min(begin + step, source.size)) for begin in range(0, source.size, step)]
    return tuple(native.prepare("stage_f32", source[part], staged[part]) for part in parts)
