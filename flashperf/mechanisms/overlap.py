"""Overlap: when does computing hide the copies of the next layer's weights?

The same products as in transfer, weights streamed layer by layer.

- serial: copied, then multiplied with
- overlapped: copied by a second thread, on another core where there is one, while the layer before is multiplied,
  into two buffers in turn; two CUDA streams and an event

The more rows share a weight, the more work there is to each byte: ``bench/overlap_fraction.py`` prints the
fraction of the copies that is hidden against rows, and from how much work per byte on it is nearly all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flashperf import native
from flashperf.beside import run_beside
from flashperf.mechanisms import _layers
from flashperf.records import Arrays, Case, Mechanism


def bind_parts(case: Case, inputs: Arrays, outputs: Arrays) -> list[tuple[Any, Any]]:
    """(product, copies) of every layer as sequences, with two staging buffers in turn."""
    layers = _layers.bind_layers(case, inputs, outputs["y"], sets=2)
    return [(native.Sequence([layer.product]), native.Sequence(list(layer.copies))) for layer in layers]


def bind_cpu(case: Case, inputs: Arrays, outputs: Arrays) -> Callable[[], None]:
    parts = bind_parts(case, inputs, outputs)
    if case.variant == "serial":

        def serial() -> None:
            for product, copies in parts:
                copies()
                product()

        return serial
    thread = native.Background()

    def overlapped() -> None:
        run_beside(thread, parts, lambda product: product())

    return overlapped


MECHANISM = Mechanism(
    name="overlap",
    question="When does computing hide the copies of the next layer's weights?",
    claims=("B17",),
    variants=dict.fromkeys(("serial", "overlapped"), ("cpu",)),
    standard="serial",
    flash="overlapped",
    dtypes=("f32",),
    test_sizes=({"layers": 1, "m": 1, "k": 5, "n": 3}, {"layers": 4, "m": 4, "k": 192, "n": 130}),
    bench_sizes=({"layers": 8, "m": 1, "k": 512, "n": 1024}, {"layers": 8, "m": 64, "k": 512, "n": 1024}),
    make_inputs=_layers.make_inputs,
    outputs=_layers.outputs,
    reference=_layers.reference,
    cost=_layers.cost,
    ideal_bytes=_layers.ideal_bytes,
    tolerance=_layers.tolerance,
    bind={"cpu": bind_cpu},
    stand_in=dict.fromkeys(("serial", "overlapped"), _layers.STAND_IN),
)
