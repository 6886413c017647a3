"""The model's forward pass in float64 NumPy: what every variant of the pipeline is checked against.

Written for reading, not speed: the whole sequence at once, no cache, every score materialised.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from flashperf.pipeline.config import ModelConfig

Weights = Mapping[str, np.ndarray]


def forward(
    weights: Weights,
    config: ModelConfig,
    tokens: np.ndarray | Sequence[np.ndarray] | Sequence[Sequence[int]] | Sequence[bytes],
    span: int | None = None,
) -> np.ndarray:
    """Logits [b, t, vocab], float64, of the byte after each position.

    `tokens` is an integer array [b, t], or b sequences (lists, `bytes`) of any lengths: t is the longest, and
    the logits past the end of a shorter one are NaN. With `span`, a position attends to itself and the
    `span` - 1 before it, otherwise to all before it.

    Raises ValueError for a span below 1, tokens outside the vocabulary, or an empty sequence.
    """
    if span is not None and span < 1:
        raise ValueError(f"span must be at least 1, got {span}")
    rows = [np.frombuffer(row, np.uint8) if isinstance(row, bytes) else np.asarray(row) for row in tokens]
    if not rows or min(row.size for row in rows) == 0:
        raise ValueError("forward needs at least one token in every sequence")
    logits = np.full((len(rows), max(row.size for row in rows), config.vocab), np.nan)
    for index, row in enumerate(rows):
        logits[index, : row.size] = _forward_one(weights, config, row, span)
    return logits


def _forward_one(weights: Weights, config: ModelConfig, tokens: np.ndarray, span: int | None) -> np.ndarray:
    """Logits [t, vocab] of one sequence of tokens [t]."""
    if tokens.ndim != 1 or tokens.dtype.kind not in "iu":
        raise ValueError(f"a sequence is one row of integers, got shape {tokens.shape}, {tokens.dtype}")
    if tokens.min() < 0 or tokens.max() >= config.vocab:
        raise ValueError(f"tokens must lie in 0 to {config.vocab - 1}")
    embed = weights["embed"].astype(np.float64)
    x = embed[tokens]
    for layer in range(config.layers):
        block = {
            name: weights[f"layers.{layer}.{name}"].astype(np.float64)
            for name in ("norm1", "qkv", "out", "norm2", "gate", "up", "down")
        }
        qkv = rms_norm(x, block["norm1"], config.eps) @ block["qkv"]
        x = x + attention(qkv, config, span) @ block["out"]
        x = x + mlp(rms_norm(x, block["norm2"], config.eps), block["gate"], block["up"], block["down"])
    return rms_norm(x, weights["norm"].astype(np.float64), config.eps) @ embed.T


def rms_norm(x: np.ndarray, scale: np.ndarray, eps: float) -> np.ndarray:
    """x [..., dim] divided by its root mean square over the last axis, times `scale` [dim]."""
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * scale


def rope(x: np.ndarray, theta: float) -> np.ndarray:
    """Rotary positions (https://arxiv.org/abs/2104.09864) for x [heads, t, head_dim], position = row.

    The rotate-half convention: element i of the first half and element i of the second are a plane, turned by
    position * theta^(-2i / head_dim).
    """
    half = x.shape[-1] // 2
    angle = np.arange(x.shape[-2])[:, None] * theta ** (-np.arange(half) / half)
    cos, sin = np.cos(angle), np.sin(angle)
    first, second = x[..., :half], x[..., half:]
    return np.concatenate((first * cos - second * sin, second * cos + first * sin), axis=-1)


def attention(qkv: np.ndarray, config: ModelConfig, span: int | None = None) -> np.ndarray:
    """Causal attention; qkv [t, 3 * dim] to [t, dim], with RoPE on q and k and scale 1 / sqrt(head_dim)."""
    t = qkv.shape[0]
    q, k, v = qkv.reshape(t, 3, config.heads, config.head_dim).transpose(1, 2, 0, 3)
    q, k = rope(q, config.rope_theta), rope(k, config.rope_theta)
    scores = q @ k.transpose(0, 2, 1) / math.sqrt(config.head_dim)
    behind = np.arange(t)[:, None] - np.arange(t)  # how far key j lies behind query i
    allowed = (behind >= 0) & (behind < (t if span is None else span))
    mixed = softmax(np.where(allowed, scores, -np.inf)) @ v
    return mixed.transpose(1, 0, 2).reshape(t, config.dim)


def mlp(x: np.ndarray, gate: np.ndarray, up: np.ndarray, down: np.ndarray) -> np.ndarray:
    """SwiGLU: x [t, dim] to [t, dim] through (silu(x @ gate) * (x @ up)) @ down."""
    gated = x @ gate
    return (gated * sigmoid(gated) * (x @ up)) @ down


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + e^-x), written so that no large x overflows."""
    return 0.5 * (1.0 + np.tanh(0.5 * x))


def softmax(x: np.ndarray) -> np.ndarray:
    """Softmax over the last axis; each row needs a finite element."""
    exponentials = np.exp(x - x.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def bits_per_byte(logits: np.ndarray, targets: np.ndarray) -> float:
    """Mean of -log2 p(target); logits [..., vocab], targets [...] the bytes that followed."""
    logits = np.asarray(logits, np.float64)
    peak = logits.max(axis=-1)
    log_total = np.log(np.exp(logits - peak[..., None]).sum(axis=-1)) + peak
    return float(np.mean(log_total - _picked(logits, targets)) / math.log(2))


def accuracy(logits: np.ndarray, targets: np.ndarray) -> float:
    """The share of positions whose largest logit is the target's; logits [..., vocab], targets [...]."""
    _picked(logits, targets)
    return float(np.mean(np.argmax(logits, axis=-1) == np.asarray(targets)))


def _picked(logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """The target's logit at each position. Raises ValueError for shapes that don't fit or logits with NaN."""
    targets = np.asarray(targets)
    if logits.shape[:-1] != targets.shape or targets.size == 0:
        raise ValueError(f"logits {logits.shape} don't fit targets {targets.shape}")
    if np.isnan(logits).any():
        raise ValueError("logits hold NaN: cut padded positions off first")
    return np.take_along_axis(logits, targets[..., None].astype(np.int64), axis=-1)[..., 0]
