"""Shapes of the pipeline's models: the trained one and Llama-like ones with random weights."""

from __future__ import annotations

from dataclasses import dataclass

from flashperf.suggest import unknown_name


@dataclass(frozen=True)
class ModelConfig:
    """A decoder of `layers` blocks: RMSNorm, RoPE attention with as many key heads as query heads, SwiGLU.

    Sizes count elements. The vocabulary is bytes. There are no biases, and the head is the embedding, so
    ``logits = rmsnorm(x) @ embed.T``. `max_positions` is how long a sequence the model is meant for.
    """

    name: str
    layers: int
    dim: int
    heads: int
    ffn: int
    vocab: int = 256
    rope_theta: float = 10000.0
    eps: float = 1e-5
    max_positions: int = 2048

    def __post_init__(self) -> None:
        sizes = (self.layers, self.dim, self.heads, self.ffn, self.vocab, self.max_positions)
        if min(sizes) < 1:
            raise ValueError(f"model {self.name!r}: every size must be at least 1")
        if self.dim % self.heads or self.head_dim % 2:
            raise ValueError(
                f"model {self.name!r}: dim {self.dim} must split over {self.heads} heads of an even size"
            )

    @property
    def head_dim(self) -> int:
        return self.dim // self.heads

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of each weight. Matrices are [in, out], row-major, for ``y = x @ W``.

        The columns of `qkv` are q, then k, then v; inside each, head by head.
        """
        dim, ffn = self.dim, self.ffn
        shapes: dict[str, tuple[int, ...]] = {"embed": (self.vocab, dim)}
        for layer in range(self.layers):
            prefix = f"layers.{layer}."
            shapes[prefix + "norm1"] = (dim,)
            shapes[prefix + "qkv"] = (dim, 3 * dim)
            shapes[prefix + "out"] = (dim, dim)
            shapes[prefix + "norm2"] = (dim,)
            shapes[prefix + "gate"] = (dim, ffn)
            shapes[prefix + "up"] = (dim, ffn)
            shapes[prefix + "down"] = (ffn, dim)
        shapes["norm"] = (dim,)
        return shapes

    def parameters(self) -> int:
        """How many numbers the weights hold."""
        block = 4 * self.dim**2 + 3 * self.dim * self.ffn + 2 * self.dim
        return self.vocab * self.dim + self.layers * block + self.dim


# Trained on windows of up to 1280 bytes; beyond those, RoPE isn't to be relied on.
SMALL = ModelConfig("small", layers=4, dim=192, heads=6, ffn=512, max_positions=1280)

# Llama-like shapes with random weights. The vocabulary stays 256 bytes and every query head has its own key
# and value head (Llama 3's larger models share them), so the names give the size of the model whose layers
# these resemble, not a parameter count. tiny is for emulators, 10m to 110m suit a CPU, 320m to 8b a GPU.
PRESETS: dict[str, ModelConfig] = {
    config.name: config
    for config in (
        ModelConfig("tiny", layers=1, dim=64, heads=2, ffn=128),
        ModelConfig("10m", layers=6, dim=384, heads=6, ffn=1024),
        ModelConfig("40m", layers=8, dim=640, heads=10, ffn=1728),
        ModelConfig("110m", layers=12, dim=768, heads=12, ffn=2048, max_positions=4096),
        ModelConfig("320m", layers=24, dim=1024, heads=16, ffn=2816, max_positions=8192),
        ModelConfig("1b", layers=16, dim=2048, heads=32, ffn=8192, max_positions=8192),
        ModelConfig("3b", layers=28, dim=3072, heads=24, ffn=8192, max_positions=8192),
        ModelConfig("8b", layers=32, dim=4096, heads=32, ffn=14336, max_positions=8192),
    )
}


def preset(name: str) -> ModelConfig:
    """The shape called `name`. Raises ValueError with the nearest names if there is none."""
    if name not in PRESETS:
        raise ValueError(unknown_name("model shape", name, PRESETS))
    return PRESETS[name]
