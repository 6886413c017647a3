"""Transfer: what does it cost to bring weights in before each use?

y[l] = x @ w[l] for every layer l.

- resident: the weights stay where the products read them
- streamed: a layer's weights are copied in, then multiplied with; ``cpu_offload`` of accelerate
- streamed_tiles: the same, 64 KiB at a time

``bench/transfer_rates.py`` prints the bytes brought in and their effective rate by layer, by tile and overlapped. On
a CPU both sides are the same memory: a stand-in for a link between host and device.
"""

from __future__ import annotations

from collections.abc import Callable

from flashperf import native
from flashperf.mechanisms import _layers
from flashperf.records import Arrays, Case, Mechanism


def bind_cpu(case: Case, inputs: Arrays, outputs: Arrays) -> Callable[[], None]:
    """One sequence: the copies of a layer, then its product."""
    sets = 0 if case.variant == "resident" else 1
    tile = _layers.TILE_BYTES if case.variant == "streamed_tiles" else None
    layers = _layers.bind_layers(case, inputs, outputs["y"], sets, tile)
    return native.Sequence([call for layer in layers for call in (*layer.copies, layer.product)])


MECHANISM = Mechanism(
    name="transfer",
    question="What does it cost to bring weights in before each use?",
    claims=("A6", "A14", "B8"),
    variants=dict.fromkeys(("resident", "streamed", "streamed_tiles"), ("cpu",)),
    standard="resident",
    flash="streamed",
    dtypes=("f32",),
    test_sizes=({"layers": 1, "m": 1, "k": 5, "n": 3}, {"layers": 3, "m": 4, "k": 192, "n": 130}),
    bench_sizes=({"layers": 4, "m": 1, "k": 512, "n": 1024}, {"layers": 4, "m": 64, "k": 512, "n": 1024}),
    make_inputs=_layers.make_inputs,
    outputs=_layers.outputs,
    reference=_layers.reference,
    cost=_layers.cost,
    ideal_bytes=_layers.ideal_bytes,
    tolerance=_layers.tolerance,
    bind={"cpu": bind_cpu},
    stand_in=dict.fromkeys(("streamed", "streamed_tiles"), _layers.STAND_IN),
)
