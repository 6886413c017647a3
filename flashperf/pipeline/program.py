"""One step of the model as a program of kernel calls, bound once and replayed.

A step runs m rows. Each row is one token with a cache slot (its sequence) and a position, so prefill (many rows
of one slot), decode (one row a slot) and packed batches are the same program with other numbers in it. What
changes from step to step lives in small arrays that the calls point at, as a captured CUDA graph would have it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from flashperf.pipeline.config import ModelConfig
from flashperf.pipeline.engine import Engine, PlannedCall
from flashperf.pipeline.operators import Lowering, row_blocks
from flashperf.pipeline.plan import KernelSpec, Op, needs_mask, plan, storage_of
from flashperf.pipeline.storage import Buffers, WeightStore
from flashperf.pipeline.switches import Levels


@dataclass(frozen=True)
class StepShape:
    """What a step's program is made for.

    rows:      tokens of the step; segments: row ranges of whole sequences (one per slot in a prefill), or one
               range of all rows when every row has a slot of its own
    outputs:   rows whose logits are wanted
    capacity:  positions per slot; slots: sequences
    window:    positions that a window spans
    """

    rows: int
    segments: tuple[tuple[int, int], ...]
    outputs: int
    slots: int
    capacity: int
    window: int


class StepInputs:
    """The small arrays that a step's calls point at: written before the step, never rebound.

    They are parts of one block of memory, so that a device gets them all in one copy.
    """

    def __init__(self, engine: Engine, shape: StepShape) -> None:
        self._engine = engine
        self._block = engine.empty((3 * shape.rows + shape.outputs + 1,), "i32")
        host = engine.host(self._block)
        ends = [0, shape.rows, 2 * shape.rows, 3 * shape.rows, 3 * shape.rows + shape.outputs, None]
        parts = [slice(*pair) for pair in itertools.pairwise(ends)]
        self.tokens, self.slot, self.position, self.last, self.extent = (self._block[part] for part in parts)
        self._host = [host[part] for part in parts]

    @property
    def host_position(self) -> np.ndarray:
        """The positions [rows] as the host has them."""
        return self._host[2]

    @property
    def width(self) -> int:
        """Positions that are in use: one more than the largest."""
        return int(self._host[4][0])

    def fill(self, tokens: np.ndarray, slot: np.ndarray, position: np.ndarray, last: np.ndarray) -> None:
        """Set a step's tokens [rows], slots [rows], positions [rows] and the rows whose logits are wanted."""
        for array, values in zip(
            self._host, (tokens, slot, position, last, np.max(position) + 1), strict=True
        ):
            array[...] = values
        self._engine.upload(self._block)

    def advance(self, tokens: np.ndarray) -> None:
        """The next step: tokens [rows], every row one position further."""
        host_tokens, _, position, _, extent = self._host
        host_tokens[...] = tokens
        position += 1
        extent += 1
        self._engine.upload(self._block)


@dataclass(frozen=True)
class Program:
    """The bound calls of a step, its inputs, its logits [outputs, vocab] and its mask buffer, if it has one."""

    calls: tuple[PlannedCall, ...]
    replay: Callable[[], None]
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
        self.engine, self.config, self.weights, self.buffers = engine, config, weights, buffers
        self.shape, self.levels = shape, levels
        self.storage = storage_of(levels)
        self.lower = Lowering(engine, weights, buffers)
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
            hidden = self._norm(x, delta, f"layers.{layer}.norm1")
            mixed = self._attention(hidden, layer)
            delta = self._linear("out", mixed, f"layers.{layer}.out", config.dim, "delta")
            hidden = self._norm(x, delta, f"layers.{layer}.norm2")
            mlp, down = plan(Op("mlp"), self.levels), plan(Op("linear", "down"), self.levels)
            delta = lower.mlp(mlp, hidden, f"layers.{layer}", config.ffn, down)
        hidden = self._norm(x, delta, "norm")
        last = self._buffer("last", (self.shape.outputs, config.dim))
        lower.emit(f"take_rows_{storage}", hidden, self.inputs.last, last)
        logits = self._linear("head", last, "head", config.vocab, "logits")
        calls = lower.take()
        return Program(tuple(calls), self.engine.sequence(calls), self.inputs, logits, self.mask)

    def _buffer(self, name: str, shape: tuple[int, ...], dtype: str = "") -> Any:
        return self.buffers.get(name, shape, dtype or self.storage)

    def _linear(self, role: str, x: Any, weight: str, n: int, out: str) -> Any:
        return self.lower.linear(plan(Op("linear", role), self.levels), x, weight, n, out)

    def _norm(self, x: Any, delta: Any, name: str) -> Any:
        """x += delta (where there is one), then RMSNorm of x [m, dim] into the buffer ``normed``."""
        spec = plan(Op("norm"), self.levels)
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
        self.mask = self._buffer("mask", (self.shape.rows, self.shape.capacity), "f32")
        if self.levels["preprocessing"] == "cached":
            window = 0 if self.levels["span"] == "full" else self.shape.window
            capacity = self.shape.capacity
            make = lambda: causal_table(capacity, window)  # noqa: E731
            table = self.weights.table(f"mask{window}", (capacity, capacity), "f32", make)
            self.lower.emit("take_rows_f32", table, self.inputs.position, self.mask)

    def _attention(self, hidden: Any, layer: int) -> Any:
        config, rows = self.config, self.shape.rows
        qkv = self._linear("qkv", hidden, f"layers.{layer}.qkv", 3 * config.dim, "qkv")
        cache_shape = (self.shape.slots, config.heads, self.shape.capacity, config.head_dim)
        keys, values = (self._buffer(f"{name}_cache{layer}", cache_shape) for name in ("k", "v"))
        q = self._buffer("q", (rows, config.heads, config.head_dim))
        cos, sin = self._rope_tables()
        inputs = self.inputs
        kernel = f"rope_append_{self.storage}"
        self.lower.emit(kernel, qkv, cos, sin, inputs.slot, inputs.position, keys, values, q)
        mixed = self._buffer("mixed", (rows, config.heads, config.head_dim))
        spec = plan(Op("attention"), self.levels)
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

    def _rope_tables(self) -> tuple[Any, Any]:
        """cos and sin [capacity, head_dim / 2] of the rotary positions, rotate-half convention."""
        half, capacity = self.config.head_dim // 2, self.shape.capacity
        frequency = self.config.rope_theta ** (-np.arange(half) / half)
        angle = np.arange(capacity)[:, None] * frequency
        shape = (capacity, half)
        cos = self.weights.table("cos", shape, "f32", lambda: np.cos(angle).astype(np.float32))
        sin = self.weights.table("sin", shape, "f32", lambda: np.sin(angle).astype(np.float32))
        return cos, sin


def causal_table(capacity: int, window: int) -> np.ndarray:
    """Additive mask f32 [capacity, capacity]: row p lets position p see keys 0..p, the last ``window`` if > 0."""
    behind = np.arange(capacity)[:, None] - np.arange(capacity)
    seen = (behind >= 0) & ((behind < window) if window else True)
    return np.where(seen, np.float32(0), np.float32(-np.inf))
