"""A sliding window applied as a mask: every score is still computed."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from flashperf.cases.definition import Built, Expectation, OpenCase, Point, Proof
from flashperf.cases.guards import torch_installed

_HEADS, _WIDTH = 4, 64


@functools.cache
def _mask(length: int, window: int) -> Any:
    """[length, length], True where a query sees a key: itself and the window - 1 before it."""
    import torch

    position = torch.arange(length)
    distance = position[:, None] - position[None]
    return (distance >= 0) & (distance < window)


def _make(path: str, sizes: Mapping[str, int], seed: int) -> Built:
    import torch
    from torch.nn.functional import scaled_dot_product_attention as attention

    length, window = sizes["length"], sizes["window"]
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(1, _HEADS, length, _WIDTH, generator=generator) for _ in range(3))
    mask = _mask(length, window)

    def full() -> Any:
        return attention(q, k, v, is_causal=True)

    def window_mask() -> Any:
        return attention(q, k, v, attn_mask=mask)

    def window_blocks() -> Any:
        pieces = []
        for start in range(0, length, window):
            rows, keys = slice(start, start + window), slice(max(0, start - window), start + window)
            seen = mask[rows, keys]
            pieces.append(attention(q[:, :, rows], k[:, :, keys], v[:, :, keys], attn_mask=seen))
        return torch.cat(pieces, dim=2)

    def reference() -> Any:
        seen = _mask(length, length) if path == "full" else mask
        scores = q.double() @ k.double().transpose(-1, -2) / _WIDTH**0.5
        return scores.masked_fill(~seen, float("-inf")).softmax(-1) @ v.double()

    scores = {
        "full": length * (length + 1) // 2,
        "window_mask": length * length,
        "window_blocks": 2 * window * length,
    }
    facts = {"work": scores[path], "useful": int(mask.sum()) if path != "full" else scores["full"]}
    calls = {"full": full, "window_mask": window_mask, "window_blocks": window_blocks}
    proof = Proof(ops=("aten::_scaled_dot_product_flash_attention_for_cpu",))
    return Built(calls[path], reference, 1e-4, facts, proof=proof)


CASE = OpenCase(
    id="A5",
    name="window-as-mask",
    title="Local attention that masks instead of skipping",
    source="huggingface/transformers#29777, pytorch/pytorch#152528",
    reported="The sliding window of an eager model saved nothing: the mask was laid over the complete scores.",
    axis="window",
    baseline="full",
    optimised="window_mask",
    others=("window_blocks",),
    make=_make,
    points=(Point({"length": 1024, "window": 64}, 64), Point({"length": 1024, "window": 256}, 256)),
    requires=(torch_installed,),
    expectation=Expectation("slower", "useless work"),
)
