"""One step of the model as a program of kernel calls, bound once and replayed.

A step runs m rows. Each row is one token with a cache slot (its sequence) and a position, so prefill (many rows
of one slot), decode (one row a slot) and packed batches are the same program with other numbers in it. What
changes from step to step lives in small arrays that the calls point at, as a captured CUDA graph would have it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flashperf.pipeline.buffers import Buffers
from flashperf.pipeline.config import ModelConfig
from flashperf.pipeline.engine import Engine, PlannedCall, RecordingEngine
from flashperf.pipeline.inputs import StepInputs, StepShape
from flashperf.pipeline.lowering import Segment
from flashperf.pipeline.operators import Operators, row_blocks
from flashperf.pipeline.plan import KernelSpec, Op, needs_mask, plan, storage_of
from flashperf.pipeline.replay import replay_of
from flashperf.pipeline.storage import WeightStore
from flashperf.pipeline.switches import Levels
from flashperf.pipeline.tables import mask_table, rope_tables


@dataclass(frozen=True)
class Program:
    """The bound calls of a step, its inputs, its logits [outputs, vocab] and its mask buffer, if it has one.

    calls: in the order in which ``replay`` runs them; copies: what a second thread runs beside them
    handovers: times that the second thread is given work
    """

    calls: tuple[PlannedCall, ...]
    copies: tuple[PlannedCall, ...]
    handovers: int
    replay: Any
    inputs: StepInputs
    logits: Any
    mask: Any


def build_program(
    engine: Engine,
    config: ModelConfig,
    weights: WeightStore,
    buffers: Buffers,
    shape: StepShape,
    levels: Levels,
) -> Program:
    """Lower one step of the model under ``levels``. Nothing is run."""
    return _Builder(engine, config, weights, buffers, shape, levels).build()


class _Builder:
    def __init__(
        self,
        engine: Engine,
        config: ModelConfig,
        weights: WeightStore,
        buffers: Buffers,
        shape: StepShape,
        levels: Levels,
    ) -> None:
        self.engine, self.config, self.shape, self.levels = engine, config, shape, levels
        self.buffers = buffers.of(levels["allocation"])
        self.storage = storage_of(levels)
        self.lower = Operators(engine, weights, self.buffers, levels["transfer"], (shape, self.storage))
        self._levels = tuple(levels.values())
        self.weights = self.lower.weights
        self.inputs = StepInputs(engine, shape)
        self.mask: Any = None

    def build(self) -> Program:
        config, lower, storage = self.config, self.lower, self.storage
        embed = self.weights.vector("embed", storage)
        x = self._buffer("x", (self.shape.rows, config.dim))
        lower.emit(f"embed_{storage}", self.inputs.tokens, embed, x)
        if needs_mask(self.levels):
            self._emit_mask()
        delta = None
        for layer in range(config.layers):
            lower.begin(layer)
            alike = "layer", self._levels, delta is None
            delta = self._once(alike, lambda layer=layer, delta=delta: self._layer(x, delta, layer))  # type: ignore[misc]
        lower.begin(config.layers)
        hidden = self._norm(x, delta, "norm")
        last = self._buffer("last", (self.shape.outputs, config.dim))
        lower.emit(f"take_rows_{storage}", hidden, self.inputs.last, last)
        logits = self._linear("head", last, "head", config.vocab, "logits")
        if self.buffers.allocation == "fresh":
            self._emit_fresh_pages()
        return self._finish(logits)

    def _layer(self, x: Any, delta: Any, layer: int) -> Any:
        rows = self.shape.rows
        hidden = self._norm(x, delta, f"layers.{layer}.norm1")
        mixed = self._attention(hidden, layer)
        delta = self._linear("out", mixed, f"layers.{layer}.out", self.config.dim, "delta")
        hidden = self._norm(x, delta, f"layers.{layer}.norm2")
        mlp, down = plan(Op("mlp", "", rows), self.levels), plan(Op("linear", "down", rows), self.levels)
        lower = lambda: self.lower.mlp(mlp, hidden, f"layers.{layer}", self.config.ffn, down)  # noqa: E731
        return self._once(("mlp", mlp, down), lower)

    def _once(self, key: tuple[Any, ...], lower: Callable[[], Any]) -> Any:
        """Layers are alike: one that is only counted is lowered once."""
        return self.lower.once(key, lower)

    def _emit_fresh_pages(self) -> None:
        """Before everything else, every buffer is given back and asked for again."""
        first = self.lower.segments[0].calls
        for (name, dtype), n_bytes in self.lower.touched.items():
            first.insert(0, self.lower.bind("fresh_pages", self.buffers.pages(name, dtype, n_bytes)))

    def _finish(self, logits: Any) -> Program:
        """Copies go before the calls of their segment, or to the second thread."""
        segments = self.lower.segments
        beside = self.levels["transfer"] == "streamed_overlapped"
        if not beside:
            segments = [Segment([*part.copies, *part.calls]) for part in segments]
        calls = tuple(call for part in segments for call in part.calls)
        copies = tuple(call for part in segments for call in part.copies)
        replay: Any = _nothing
        if not isinstance(self.engine, RecordingEngine):
            eager = self.levels["dispatch"] == "eager"
            replay = replay_of(self.engine, [(part.calls, part.copies) for part in segments], eager)
        handovers = sum(bool(part.copies) for part in segments)
        return Program(calls, copies, handovers, replay, self.inputs, logits, self.mask)

    def _buffer(self, name: str, shape: tuple[int, ...], dtype: str = "") -> Any:
        return self.lower.buffer(name, shape, dtype or self.storage)

    def _linear(self, role: str, x: Any, weight: str, n: int, out: str) -> Any:
        spec = plan(Op("linear", role, x.shape[0]), self.levels)
        return self._once(("linear", role, spec), lambda: self.lower.linear(spec, x, weight, n, out))

    def _norm(self, x: Any, delta: Any, name: str) -> Any:
        """x += delta (where there is one), then RMSNorm of x [m, dim] into the buffer ``normed``."""
        spec = plan(Op("norm"), self.levels)
        return self._once(("norm", spec, delta is None), lambda: self._lower_norm(spec, x, delta, name))

    def _lower_norm(self, spec: KernelSpec, x: Any, delta: Any, name: str) -> Any:
        weight = self.weights.vector(name, self.storage)
        y = self._buffer("normed", x.shape)
        for rows in row_blocks(x.shape[0], spec.chunks):
            part = None if delta is None else delta[rows]
            if spec.epilogue == "passes":
                self._norm_passes(x[rows], part, weight, y[rows])
            elif part is None:
                self.lower.emit(f"rmsnorm_{self.storage}", x[rows], weight, y[rows], eps=self.config.eps)
            else:
                kernel = f"residual_rmsnorm_{self.storage}"
                self.lower.emit(kernel, x[rows], part, weight, y[rows], eps=self.config.eps)
        return y

    def _norm_passes(self, x: Any, delta: Any, weight: Any, y: Any) -> None:
        """RMSNorm as eager code launches it: add, square, mean, rsqrt, scale by row, scale by column."""
        emit, storage = self.lower.emit, self.storage
        scaled = self._buffer("norm_scaled", x.shape)
        mean, inverse = (self._buffer(name, x.shape[:1]) for name in ("norm_mean", "norm_inverse"))
        if delta is not None:
            emit(f"accumulate_{storage}", x.reshape(-1), delta.reshape(-1))
        emit(f"square_{storage}", x.reshape(-1), scaled.reshape(-1))
        emit(f"row_mean_{storage}", scaled, mean)
        emit(f"rsqrt_eps_{storage}", mean, inverse, eps=self.config.eps)
        emit(f"scale_rows_{storage}", x, inverse, scaled)
        emit(f"scale_cols_{storage}", scaled, weight, y)

    def _emit_mask(self) -> None:
        """The mask [rows, capacity] of this step: gathered from a table, or left for the host to write."""
        self.mask = self.buffers.state("mask", (self.shape.rows, self.shape.capacity), "f32")
        if self.levels["preprocessing"] == "cached":
            window = 0 if self.levels["span"] == "full" else self.shape.window
            table = mask_table(self.weights, self.shape.capacity, window)
            self.lower.emit("take_rows_f32", table, self.inputs.position, self.mask)

    def _attention(self, hidden: Any, layer: int) -> Any:
        config = self.config
        qkv = self._linear("qkv", hidden, f"layers.{layer}.qkv", 3 * config.dim, "qkv")
        spec = plan(Op("attention"), self.levels)
        return self._once(("attention", spec), lambda: self._lower_attention(spec, qkv, layer))

    def _lower_attention(self, spec: KernelSpec, qkv: Any, layer: int) -> Any:
        config, rows = self.config, self.shape.rows
        cache_shape = (self.shape.slots, config.heads, self.shape.capacity, config.head_dim)
        keys, values = (
            self.buffers.state(f"{name}_cache{layer}", cache_shape, self.storage) for name in ("k", "v")
        )
        q = self._buffer("q", (rows, config.heads, config.head_dim))
        cos, sin = rope_tables(self.weights, config, self.shape.capacity)
        inputs = self.inputs
        kernel = f"rope_append_{self.storage}"
        self.lower.emit(kernel, qkv, cos, sin, inputs.slot, inputs.position, keys, values, q)
        mixed = self._buffer("mixed", (rows, config.heads, config.head_dim))
        if spec.algorithm == "materialised":
            for start, stop in self.shape.segments:
                self._materialised(spec, slice(start, stop), q, keys, values, mixed)
        else:
            for block in row_blocks(rows, spec.chunks):
                self._online(spec, block, q, keys, values, mixed)
        return mixed.reshape(rows, config.dim)

    def _online(self, spec: KernelSpec, rows: slice, q: Any, keys: Any, values: Any, mixed: Any) -> None:
        inputs, scale = self.inputs, 1 / math.sqrt(self.config.head_dim)
        kernel = f"attention_{spec.algorithm}_{self.storage}"
        if spec.algorithm == "online_masked":
            seen: tuple[Any, ...] = (inputs.slot[rows], self.mask[rows], inputs.extent)
            self.lower.emit(kernel, q[rows], keys, values, *seen, mixed[rows], scale=scale)
        else:
            window = self.shape.window if spec.window == "skip" else 0
            seen = (inputs.slot[rows], inputs.position[rows])
            self.lower.emit(kernel, q[rows], keys, values, *seen, mixed[rows], window=window, scale=scale)

    def _materialised(
        self, spec: KernelSpec, rows: slice, q: Any, keys: Any, values: Any, mixed: Any
    ) -> None:
        emit, inputs, heads = self.lower.emit, self.inputs, self.config.heads
        m, scale = rows.stop - rows.start, 1 / math.sqrt(self.config.head_dim)
        scores = self._buffer("scores", (heads, m, self.shape.capacity), "f32")
        if spec.window == "skip":
            seen = (inputs.slot[rows], inputs.position[rows], inputs.extent)
            kernel = f"attention_scores_window_{self.storage}"
            emit(kernel, q[rows], keys, *seen, scores, window=self.shape.window, scale=scale)
        else:
            kernel = f"attention_scores_{self.storage}"
            emit(kernel, q[rows], keys, inputs.slot[rows], inputs.extent, scores, scale=scale)
        emit("add_mask", scores, self.mask[rows], inputs.extent)
        if spec.epilogue == "passes":
            peak, total = (self._buffer(name, (heads, m), "f32") for name in ("scores_peak", "scores_total"))
            emit("scores_max", scores, inputs.extent, peak)
            emit("scores_subtract_exp", scores, peak, inputs.extent)
            emit("scores_sum", scores, inputs.extent, total)
            emit("scores_divide", scores, total, inputs.extent)
        else:
            emit("softmax_extent", scores, inputs.extent)
        out = (scores, values, inputs.slot[rows], inputs.extent, mixed[rows])
        emit(f"attention_values_{self.storage}", *out)


def _nothing() -> None:
    """The replay of a program that was only recorded."""
