"""The switches of the pipeline: one for each trade-off that acts inside a process, with its levels.

All switches at their first level is the Standard variant. A flash level is something that real systems do; its
source is named. Nothing here is slowed on purpose.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

from flashperf.errors import UserError
from flashperf.suggest import unknown_name

Levels = Mapping[str, str]


@dataclass(frozen=True)
class Switch:
    """A trade-off that can be flipped in place.

    seam:   where it acts: "operators" (the plan of an operator) or "step" (around every step)
    levels: level -> what it does and who does it; the first is the standard one
    claims: ids of the claims in the source documents that it bears on
    """

    name: str
    seam: str
    levels: Mapping[str, str]
    claims: tuple[str, ...]

    @property
    def standard(self) -> str:
        """The level of the Standard variant."""
        return next(iter(self.levels))


_SWITCHES = (
    Switch(
        "precision",
        "operators",
        {
            "f32": "everything in binary32",
            "mixed": "products in bf16, operands and weights cast in memory around each, everything else f32; "
            "what torch.autocast does in inference, where weight casts are not cached",
            "bf16": "weights, activations and the KV cache kept in bf16, sums in f32",
            "f16": "weights, activations and the KV cache kept in f16, sums in f32",
            "adaptive": "products of many rows in bf16 with weights kept so, others in f32; from how many rows on "
            "is measured first, for this model on this machine",
        },
        ("A5", "B15", "A19"),
    ),
    Switch(
        "quantization",
        "operators",
        {
            "none": "no integers",
            "int8_dynamic": "the MLP's products in INT8, each row's absmax found on every call; "
            "torch.ao.quantization.quantize_dynamic",
            "int8_static": "the same with scales found beforehand on other text; torch.ao.quantization with observers",
            "weight_only": "the MLP's weights in INT8, activations as they are, widened inside the product; "
            "int8_weight_only of torchao",
        },
        ("A11",),
    ),
    Switch(
        "tiling",
        "operators",
        {
            "blocked": "weights packed once, register- and cache-blocked product",
            "bad_tile": "a small tile that reloads its sums, weights as stored; an untuned default tile",
            "naive": "three loops; what a first version looks like",
        },
        ("A6", "B16"),
    ),
    Switch(
        "fusion",
        "operators",
        {
            "fused": "norm with residual, SwiGLU inside the product, softmax in one pass",
            "split": "a pass for each step of the formula; eager LlamaRMSNorm and LlamaMLP in transformers",
            "over": "the whole MLP in one kernel that goes row by row; fully fused MLPs as in tiny-cuda-nn",
        },
        ("A10", "B14", "B6"),
    ),
    Switch(
        "launch",
        "operators",
        {
            "whole": "one call an operator",
            "chunked": "each operator issued as eight calls over slices; fine-grained task partitioning",
        },
        ("A12",),
    ),
    Switch(
        "attention",
        "operators",
        {
            "online": "online softmax, scores never in memory (FlashAttention)",
            "materialised": "scores written, masked, normalised and read back; eager attention in transformers",
        },
        ("B13",),
    ),
    Switch(
        "span",
        "operators",
        {
            "full": "every earlier position",
            "window": "the last positions only, blocks outside skipped; changes the function",
            "window_mask": "the same window as a mask over all scores; Mistral's first eager attention",
        },
        ("B13",),
    ),
    Switch(
        "batching",
        "step",
        {
            "bucketed": "prompts of similar length together, padded to the longest of their bucket; "
            "bucket_by_sequence_length in TensorFlow",
            "packed": "prompts end to end without padding; packed sequences of FlashAttention's varlen interface",
            "padded": "every prompt padded to the longest of the batch; a tokenizer with padding=True",
            "single": "one request at a time, from its prompt to its last token; no batching",
        },
        ("A8", "A15", "B9", "B18"),
    ),
    Switch(
        "preprocessing",
        "step",
        {
            "cached": "masks made once",
            "rebuilt": "positions and the attention mask rebuilt on the host each step; "
            "_prepare_4d_causal_attention_mask in transformers",
        },
        ("A4", "A9"),
    ),
    Switch(
        "dispatch",
        "step",
        {
            "planned": "calls checked and bound once, replayed natively; a captured CUDA graph",
            "eager": "every call checked and bound from Python each time; eager mode of PyTorch",
        },
        ("A13", "A16", "B4"),
    ),
    Switch(
        "transfer",
        "step",
        {
            "resident": "weights stay where products read them",
            "streamed_overlapped": "a layer's weights copied in by a second thread while the layer before computes; "
            "prefetching offload as in DeepSpeed's ZeRO-Inference",
            "streamed": "a layer's weights copied in, then computed with; cpu_offload of accelerate",
            "streamed_tiles": "each product's weights copied in just before it, 64 KiB at a time",
        },
        ("A6", "A14", "B8", "B17"),
    ),
    Switch(
        "allocation",
        "step",
        {
            "reused": "activation buffers made once, aligned to cache lines",
            "fresh": "activation buffers asked of the system anew for every step; "
            "PYTORCH_NO_CUDA_MEMORY_CACHING=1",
            "fixed_pool": "activations and KV cache cut out of one pool one after the other, aligned to 16 bytes "
            "only; the contexts of ggml (GGML_MEM_ALIGN)",
        },
        ("A17", "B5"),
    ),
    Switch(
        "checkpoint",
        "step",
        {
            "none": "no state saved",
            "every_n_sync": "the KV cache copied and written to a file every few tokens, generation waits; "
            "rapid-recovery serving as the second document describes it",
            "every_n_async": "the copy is waited for, a thread writes the file; async_save in "
            "torch.distributed.checkpoint",
        },
        ("B10",),
    ),
)

SWITCHES: dict[str, Switch] = {switch.name: switch for switch in _SWITCHES}
STANDARD: dict[str, str] = {switch.name: switch.standard for switch in _SWITCHES}

#: The Flash variants of the two documents; what is not named stays at its standard level.
FLASH_PRESETS: dict[str, dict[str, str]] = {
    "a": {
        "precision": "mixed",
        "quantization": "int8_dynamic",
        "tiling": "bad_tile",
        "fusion": "split",
        "launch": "chunked",
        "attention": "materialised",
        "batching": "padded",
        "preprocessing": "rebuilt",
        "dispatch": "eager",
        "transfer": "streamed",
        "allocation": "fresh",
    },
    "b": {
        "fusion": "over",
        "batching": "single",
        "dispatch": "eager",
        "transfer": "streamed_overlapped",
        "allocation": "fixed_pool",
        "checkpoint": "every_n_sync",
    },
}


def precision_of(levels: Levels) -> str:
    """The level of precision without the rule of ``adaptive``."""
    return levels["precision"].partition(":")[0]


def parse_levels(text: str, base: Levels = STANDARD) -> dict[str, str]:
    """Levels from ``a``, ``b`` or ``switch=level,...`` on top of ``base``; presets and pairs can be mixed.

    Raises UserError with the nearest valid names for an unknown switch or level.
    """
    levels = dict(base)
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, equals, level = (piece.strip() for piece in part.partition("="))
        if not equals and name in FLASH_PRESETS:
            levels.update(FLASH_PRESETS[name])
        elif not equals:
            raise UserError(unknown_name("variant", name, FLASH_PRESETS) + "; or switch=level,...")
        elif name not in SWITCHES:
            raise UserError(unknown_name("switch", name, SWITCHES))
        elif level not in SWITCHES[name].levels:
            raise UserError(unknown_name(f"level of {name}", level, SWITCHES[name].levels))
        else:
            levels[name] = level
    return levels


def parse_flash(text: str) -> dict[str, str]:
    """The levels of a Flash variant. Raises UserError as ``parse_levels`` does, and where none is named."""
    if not text.strip(", "):
        raise UserError("no Flash variant is named: a, b, or switch=level,...")
    return parse_levels(text)


def all_mixtures(standard: Levels, flash: Levels, names: tuple[str, ...]) -> list[dict[str, str]]:
    """The 2**k mixtures of two variants; bit i of the index set means that names[i] stands at flash."""
    mixtures = []
    for bits in itertools.product((0, 1), repeat=len(names)):
        flipped = {name: flash[name] for name, bit in zip(names, reversed(bits), strict=True) if bit}
        mixtures.append({**standard, **flipped})
    return mixtures
