"""Batching requests of unlike lengths by padding: the longest one sets the work of all."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from flashperf.cases.definition import CONTROL, Built, Expectation, OpenCase, Point, Proof
from flashperf.cases.guards import torch_installed

_WIDTH, _HEADS, _HIDDEN = 128, 4, 512
_BUCKETS = (12, 16, 24)  # longest request of each bucket; one more takes what is longer


@functools.cache
def _weights(seed: int) -> tuple[Any, ...]:
    import torch

    torch.manual_seed(seed)
    shapes = ((3 * _WIDTH, _WIDTH), (_WIDTH, _WIDTH), (_HIDDEN, _WIDTH), (_WIDTH, _HIDDEN))
    return tuple(torch.randn(shape) / shape[1] ** 0.5 for shape in shapes)


def _layer(x: Any, lengths: Sequence[int], weights: Sequence[Any]) -> Any:
    """An encoder layer on padded requests [n, longest, width]; padding is masked as keys."""
    import torch
    from torch.nn import functional

    n, longest, width = x.shape
    mask = None
    if min(lengths) < longest:
        mask = (torch.arange(longest) < torch.tensor(lengths)[:, None])[:, None, None, :]
    normed = functional.layer_norm(x, (width,))
    parts = functional.linear(normed, weights[0]).view(n, longest, 3, _HEADS, -1).permute(2, 0, 3, 1, 4)
    mixed = functional.scaled_dot_product_attention(parts[0], parts[1], parts[2], attn_mask=mask)
    x = x + functional.linear(mixed.transpose(1, 2).reshape(n, longest, width), weights[1])
    hidden = functional.gelu(functional.linear(functional.layer_norm(x, (width,)), weights[2]))
    return x + functional.linear(hidden, weights[3])


def _groups(path: str, lengths: Sequence[int]) -> list[list[int]]:
    """Which requests share a call."""
    everyone = range(len(lengths))
    if path == "one_by_one":
        return [[n] for n in everyone]
    if path == "padded":
        return [list(everyone)]
    edges = (0, *_BUCKETS, max(lengths))
    found = [[n for n in everyone if low < lengths[n] <= high] for low, high in itertools.pairwise(edges)]
    return [group for group in found if group]


def _flops(requests: int, longest: int) -> int:
    linear = 2 * (4 * _WIDTH * _WIDTH + 2 * _WIDTH * _HIDDEN)
    return requests * (longest * linear + 4 * longest * longest * _WIDTH)


def _make(path: str, sizes: Mapping[str, int], seed: int) -> Built:
    import torch

    generator = torch.Generator().manual_seed(seed)
    longest, requests = sizes["longest"], sizes["requests"]
    short = torch.randint(8, 25, (requests - 1,), generator=generator).tolist()
    lengths = [longest] * requests if longest < 25 else [*short, longest]
    texts = [torch.randn(length, _WIDTH, generator=generator) for length in lengths]
    weights = _weights(seed)
    groups = _groups(path, lengths)

    def run(texts: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
        results: list[Any] = [None] * requests
        with torch.no_grad():
            for group in groups:
                batch = torch.nn.utils.rnn.pad_sequence([texts[n] for n in group], batch_first=True)
                out = _layer(batch, [lengths[n] for n in group], weights)
                for row, n in enumerate(group):
                    results[n] = out[row, : lengths[n]]
        return results

    def reference() -> list[Any]:
        wide = [weight.double() for weight in weights]
        with torch.no_grad():
            return [_layer(text.double()[None], [len(text)], wide)[0] for text in texts]

    facts = {
        "work": sum(_flops(len(group), max(lengths[n] for n in group)) for group in groups),
        "useful": sum(_flops(1, length) for length in lengths),
        "tokens": sum(lengths),
        "padded_tokens": sum(len(group) * max(lengths[n] for n in group) for group in groups),
    }
    proof = Proof(ops=("aten::scaled_dot_product_attention", "aten::linear"))
    return Built(functools.partial(run, texts, weights), reference, 1e-4, facts, proof=proof)


CASE = OpenCase(
    id="A4",
    name="padded-batch",
    title="One batch padded to its longest request",
    source="huggingface/transformers#14125, #12231",
    reported="With all texts padded to 512 tokens the GPU was fully busy for 3 minutes; one by one it was half idle "
    "and done in 35 seconds.",
    axis="longest",
    baseline="one_by_one",
    optimised="padded",
    others=("buckets",),
    make=_make,
    points=(
        Point({"requests": 16, "longest": 192}, 192),
        Point({"requests": 16, "longest": 16}, 16, CONTROL, paths=("padded",)),
    ),
    requires=(torch_installed,),
    expectation=Expectation("slower", "useless work"),
)
