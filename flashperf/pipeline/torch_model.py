"""The small model in PyTorch, for training it and for checking the NumPy reference against."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from flashperf.dtypes import to_bf16
from flashperf.pipeline.config import ModelConfig


class Block(nn.Module):
    """One pre-norm decoder block: x += attention(norm(x)); x += swiglu(norm(x))."""

    def __init__(self, config: ModelConfig, dropout: float) -> None:
        super().__init__()
        dim, ffn = config.dim, config.ffn
        residual_std = 0.05 / math.sqrt(2 * config.layers)  # the residual stream keeps its scale (GPT-2)
        self.heads, self.eps, self.dropout = config.heads, config.eps, dropout
        self.norm1 = nn.Parameter(torch.ones(dim))
        self.qkv = nn.Parameter(torch.randn(dim, 3 * dim) * 0.05)
        self.out = nn.Parameter(torch.randn(dim, dim) * residual_std)
        self.norm2 = nn.Parameter(torch.ones(dim))
        self.gate = nn.Parameter(torch.randn(dim, ffn) * 0.05)
        self.up = nn.Parameter(torch.randn(dim, ffn) * 0.05)
        self.down = nn.Parameter(torch.randn(ffn, dim) * residual_std)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x [b, t, dim]; cos, sin [t, head_dim / 2]."""
        x = x + self._drop(
            self._attention(functional.rms_norm(x, x.shape[-1:], self.norm1, self.eps), cos, sin)
        )
        return x + self._drop(self._mlp(functional.rms_norm(x, x.shape[-1:], self.norm2, self.eps)))

    def _attention(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        b, t, dim = x.shape
        q, k, v = (x @ self.qkv).view(b, t, 3, self.heads, dim // self.heads).permute(2, 0, 3, 1, 4)
        q, k = rotate(q, cos, sin).to(v.dtype), rotate(k, cos, sin).to(v.dtype)
        # Written out: at 256 positions on one core, torch's fused attention makes a step take 1.3x as long.
        scores = (q * (dim // self.heads) ** -0.5) @ k.transpose(-1, -2)
        later = torch.full((t, t), float("-inf"), dtype=scores.dtype).triu(1)
        mixed = (scores + later).softmax(-1, dtype=scores.dtype) @ v
        return mixed.transpose(1, 2).reshape(b, t, dim) @ self.out

    def _mlp(self, x: Tensor) -> Tensor:
        return self._drop(functional.silu(x @ self.gate) * (x @ self.up)) @ self.down

    def _drop(self, x: Tensor) -> Tensor:
        return drop(x, self.dropout) if self.training and self.dropout else x


class Model(nn.Module):
    """Parameters have the names and shapes of `ModelConfig.shapes()`."""

    def __init__(self, config: ModelConfig, dropout: float = 0.0) -> None:
        super().__init__()
        self.config = config
        self.embed = nn.Parameter(torch.randn(config.vocab, config.dim) * 0.02)
        self.layers = nn.ModuleList(Block(config, dropout) for _ in range(config.layers))
        self.norm = nn.Parameter(torch.ones(config.dim))

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits [b, t, vocab] of tokens int64 [b, t]."""
        cos, sin = angles(tokens.shape[1], self.config, self.embed.dtype)
        x = functional.embedding(tokens, self.embed)
        for block in self.layers:
            x = block(x, cos, sin)
        return functional.rms_norm(x, x.shape[-1:], self.norm, self.config.eps) @ self.embed.T

    def load_arrays(self, weights: Mapping[str, np.ndarray]) -> None:
        """Take over the values of `weights`, in this model's dtype."""
        self.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in weights.items()})


def drop(x: Tensor, share: float) -> Tensor:
    """Dropout of whole channels per sequence; x [b, t, channels].

    One mask for all positions: drawing a random number per element took a sixth of a training step.
    """
    mask = torch.empty(x.shape[0], 1, x.shape[-1], dtype=x.dtype).bernoulli_(1 - share)
    return x * (mask / (1 - share))


def angles(positions: int, config: ModelConfig, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosine and sine [positions, head_dim / 2] of RoPE's angles."""
    half = torch.arange(0, config.head_dim, 2, dtype=torch.float64) / config.head_dim
    angle = torch.arange(positions, dtype=torch.float64)[:, None] * config.rope_theta**-half
    return angle.cos().to(dtype), angle.sin().to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """RoPE by halves: element i of the first half turns with element i of the second."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def evaluate(model: Model, tokens: torch.Tensor, window: int) -> tuple[float, float]:
    """Bits per byte and the share of bytes guessed right, over `tokens` in windows without overlap.

    A byte's context is only its own window, so the first bytes of each window count as well and a longer
    window is an easier task.
    """
    model.eval()
    bits = hits = 0.0
    rows = (len(tokens) - 1) // window
    inputs, targets = (tokens[start : start + rows * window].view(rows, window) for start in (0, 1))
    together = max(1, 4096 // window)
    with torch.no_grad():
        for x, y in zip(inputs.split(together), targets.split(together), strict=True):
            logits = model(x)
            bits += functional.cross_entropy(
                logits.flatten(0, 1), y.flatten(), reduction="sum"
            ).item() / math.log(2)
            hits += (logits.argmax(-1) == y).sum().item()
    model.train()
    return bits / targets.numel(), hits / targets.numel()


def bf16_weights(model: Model) -> dict[str, np.ndarray]:
    """The weights rounded to bfloat16 (uint16 bit patterns), in the order of `ModelConfig.shapes()`."""
    state = model.state_dict()
    return {name: to_bf16(state[name].numpy()) for name in model.config.shapes()}
