"""Quality on held-out text: bits per byte and next-byte accuracy of a mixture, through its own kernels."""

from __future__ import annotations

import numpy as np

from flashperf.dtypes import widen
from flashperf.pipeline.buffers import Buffers
from flashperf.pipeline.config import ModelConfig
from flashperf.pipeline.decorators import rebuild_mask
from flashperf.pipeline.engine import Engine
from flashperf.pipeline.inputs import StepShape
from flashperf.pipeline.plan import storage_of
from flashperf.pipeline.program import build_program
from flashperf.pipeline.reference import accuracy, bits_per_byte
from flashperf.pipeline.storage import WeightStore
from flashperf.pipeline.switches import Levels
from flashperf.pipeline.text import heldout_bytes

CONTEXT = 256  # bytes that the model sees at once: each is predicted from 0 to 255 earlier ones
SPAN = 64  # positions of a sliding window, where the span switch asks for one


def held_out(
    engine: Engine, config: ModelConfig, weights: WeightStore, levels: Levels, n_bytes: int
) -> dict[str, float]:
    """Bits per byte and accuracy on about ``n_bytes`` of the held-out text: windows of CONTEXT bytes, evenly spread."""
    shape = StepShape(CONTEXT, ((0, CONTEXT),), CONTEXT, 1, CONTEXT, SPAN)
    program = build_program(engine, config, weights, Buffers(engine), shape, levels)
    text = np.frombuffer(heldout_bytes(), np.uint8).astype(np.int32)
    rows = np.arange(CONTEXT)
    logits, targets = [], []
    host = None
    if levels["preprocessing"] == "rebuilt":
        host = rebuild_mask(engine, program, 0 if levels["span"] == "full" else SPAN)
    count = max(1, min(n_bytes, len(text) - 1) // CONTEXT)
    for start in np.linspace(0, len(text) - CONTEXT - 1, count).astype(int):
        program.inputs.fill(text[start : start + CONTEXT], np.zeros(CONTEXT), rows, rows)
        if host is not None:
            host()
        program.replay()
        logits.append(widen(engine.read(program.logits), storage_of(levels)))
        targets.append(text[start + 1 : start + CONTEXT + 1])
    joined, wanted = np.concatenate(logits), np.concatenate(targets)
    return {"bits_per_byte": bits_per_byte(joined, wanted), "accuracy": accuracy(joined, wanted)}
