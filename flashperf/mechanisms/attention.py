"""Attention: a score matrix in memory or online softmax; a window that skips keys or one that masks them.

Rows are the last of a sequence whose keys and values lie in a cache, as in a model that decodes or goes on
with a prompt: row i looks at the keys up to its own position. Variants:

- online: scores live in registers and the first-level cache, one block of keys at a time (FlashAttention)
- materialised: scores written, masked, normalised and read back (``eager_attention_forward`` in transformers)
- window: online, and only the blocks that hold one of the last ``window`` keys of a row are read
- window_as_mask: online over all keys with the window as an additive mask, as a library without a window
  argument is given it; nothing is skipped

The windows compute another function than full attention and are held against their own reference.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from flashperf.dtypes import UNIT_ROUNDOFF, cast, widen
from flashperf.mechanisms import _passes
from flashperf.mechanisms._elsewhere import binder
from flashperf.mechanisms._passes import Pass
from flashperf.records import Arrays, ArraySpec, Case, Cost, Mechanism, Tolerance

_WINDOWED = ("window", "window_as_mask")


def _window(case: Case) -> int:
    """How many keys a row sees at most; all of them is the number of keys."""
    return case["window"] if case.variant in _WINDOWED else case["keys"]


def visible(case: Case) -> np.ndarray:
    """visible[row, key]: whether a row looks at a key."""
    position = np.arange(case["keys"] - case["rows"], case["keys"])[:, None]
    key = np.arange(case["keys"])
    return (key <= position) & (key > position - _window(case))


def _specs(case: Case) -> dict[str, ArraySpec]:
    heads, rows, keys, e = (case[name] for name in ("heads", "rows", "keys", "head_dim"))
    cache = ArraySpec((1, heads, keys, e), case.dtype)
    row = ArraySpec((rows, heads, e), case.dtype)
    return {
        "q": row,
        "k": cache,
        "v": cache,
        "slot": ArraySpec((rows,), "i32"),
        "position": ArraySpec((rows,), "i32"),
        "extent": ArraySpec((1,), "i32"),
        "mask": ArraySpec((rows, keys), "f32"),
        "scores": ArraySpec((heads, rows, keys), "f32"),
        "y": row,
    }


def _in_blocks(seen: np.ndarray, rows: int, keys: int) -> int:
    """How many keys are read if that many rows at a time read whole blocks of that many keys, to the last one seen."""
    read = np.zeros(seen.shape[1], bool)
    for first in range(0, len(seen), rows):
        these = np.flatnonzero(seen[first : first + rows].any(0))
        read[these[0] // keys * keys : these[-1] + 1] = True
    return int(read.sum())


def _softmax_flops(pairs: int) -> int:
    return 4 * pairs  # maximum, difference, exp, sum


def passes(case: Case) -> list[Pass]:
    """The launches of one call. Operations: those on the pairs of a row and a key that a variant must do."""
    heads, rows, keys, e = (case[name] for name in ("heads", "rows", "keys", "head_dim"))
    t, scale = case.dtype, 1 / math.sqrt(e)
    every = heads * rows * keys
    # The CPU's kernels are told how many keys there are, those of a GPU each row's position.
    seen_by, extent = ("extent", "extent") if case.backend == "cpu" else ("position", "")
    if case.variant == "materialised":
        return [
            Pass(
                f"attention_scores_{t}",
                f"q k slot {seen_by} -> scores",
                (2 * e + 1) * every,
                scalars={"scale": scale},
            ),
            Pass("add_mask", f"~scores mask {extent}", every),
            Pass("softmax_extent", f"~scores {extent}", _softmax_flops(every) + every),
            Pass(f"attention_values_{t}", f"scores v slot {seen_by} -> y", 2 * e * every),
        ]
    if case.variant == "window_as_mask":
        flops = (4 * e + 1) * every + _softmax_flops(every) + 2 * heads * rows * e
        kernel, touched = f"attention_online_masked_{t}", {}
        if case.backend == "cuda" and t == "f32":  # keys without any weight: their values are left alone
            touched = {"v": heads * _in_blocks(visible(case), 1, 32) * e * _passes.itemsize(t)}
        operands = f"q k v slot mask {seen_by} -> y"
        return [Pass(kernel, operands, flops, scalars={"scale": scale}, touched=touched)]
    seen = visible(case)
    pairs = heads * int(seen.sum())
    flops = 4 * e * pairs + _softmax_flops(pairs) + 2 * heads * rows * e  # q scaled, y divided by the sum
    # On Tensor Cores 64 rows walk tiles of 64 keys, from the tile that holds the first that one of them sees.
    used = _in_blocks(seen, 64, 64) if case.backend == "cuda" and t != "f32" else int(seen.any(0).sum())
    in_cache = heads * used * e * _passes.itemsize(t)
    return [
        Pass(
            f"attention_online_{t}",
            "q k v slot position -> y",
            flops,
            scalars={"window": case["window"] if case.variant == "window" else 0, "scale": scale},
            touched={"k": in_cache, "v": in_cache},
        )
    ]


def make_inputs(case: Case) -> Arrays:
    """Normal values; some keys lie far out, so that the maximum moves late, and values are off zero."""
    rng = np.random.default_rng(case.seed)
    specs = _specs(case)
    arrays = {name: rng.standard_normal(specs[name].shape).astype(np.float32) for name in ("q", "k", "v")}
    arrays["k"][:, :, -1 :: -max(1, case["keys"] // 5)] *= 4.0
    arrays["v"] += 0.5
    inputs = {name: cast(values, case.dtype) for name, values in arrays.items()}
    inputs["slot"] = np.zeros(case["rows"], np.int32)
    inputs["position"] = np.arange(case["keys"] - case["rows"], case["keys"], dtype=np.int32)
    inputs["extent"] = np.array([case["keys"]], np.int32)
    return inputs


def outputs(case: Case) -> dict[str, ArraySpec]:
    """y[rows, heads, head_dim]"""
    return {"y": _specs(case)["y"]}


def reference(case: Case, inputs: Arrays) -> Arrays:
    """float64 over the keys that this variant's rows see."""
    q, k, v = (widen(inputs[name], case.dtype) for name in ("q", "k", "v"))
    # matmul, not einsum: a GPU's sizes would take seconds a case.
    scores = q.transpose(1, 0, 2) @ k[0].transpose(0, 2, 1) / math.sqrt(case["head_dim"])
    scores = np.where(visible(case), scores, -np.inf)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    return {"y": (p @ v[0]).transpose(1, 0, 2)}


def tolerance(case: Case) -> Tolerance:
    """One rounding to the storage type; inside, float32 scores up to about 16 whose error exp passes on.

    Tensor Cores take both operands of the second product in the storage type, so that there the weights are
    rounded as well. They sum to 1, and a value is about 1: the sum moves by up to one roundoff.
    """
    single = UNIT_ROUNDOFF["f32"]
    stored = UNIT_ROUNDOFF[case.dtype] if case.dtype != "f32" else 0.0
    in_exp = 16 * single * math.sqrt(case["head_dim"])
    weights = 0.0 if case.backend == "cpu" else stored
    why = f", weights rounded to {case.dtype} for the second product" if weights else ""
    return Tolerance(
        relative=2 * (stored + 16 * single),
        absolute=2 * (in_exp + weights),
        reason="twice: a rounding of y, and weights off by the float32 error of scores up to 16 "
        f"({in_exp:.1e} for {case['head_dim']} products){why}",
    )


def supports(case: Case) -> str:
    """The CUDA kernels keep a row of queries in registers or shared memory of a fixed size."""
    if case.backend == "cuda" and case["head_dim"] > 128:
        return f"attention's CUDA kernels take heads of up to 128, not {case['head_dim']}"
    return ""


def cost(case: Case) -> Cost:
    """From the list of launches; of the cache only what some row looks at, unless every key is read."""
    return _passes.cost(passes(case), _specs(case))


def ideal_bytes(case: Case) -> int:
    """q, y and the visible keys and values, once each."""
    used = case["heads"] * int(visible(case).any(0).sum()) * case["head_dim"] * _passes.itemsize(case.dtype)
    return 2 * _passes.size_bytes(_specs(case)["q"]) + 2 * used


def bind_cpu(case: Case, inputs: Arrays, outputs: Arrays) -> Callable[[], None]:
    """The mask is made here: what it costs to make one is the mechanism ``preprocessing``."""
    mask = np.where(visible(case), np.float32(0), np.float32(-np.inf))
    return _passes.bind(passes(case), _specs(case), {**inputs, **outputs, "mask": mask})


def _sizes(*rows: tuple[int, int, int, int, int]) -> list[dict[str, int | str]]:
    names = ("heads", "rows", "keys", "head_dim", "window")
    return [dict(zip(names, row, strict=True)) for row in rows]


MECHANISM = Mechanism(
    name="attention",
    question="What does a score matrix in memory cost, and what does a window save that skips blocks?",
    claims=("B13",),
    variants=dict.fromkeys(("online", "materialised", "window", "window_as_mask"), ("cpu", "cuda", "triton")),
    standard="online",
    flash="materialised",
    dtypes=("f32", "bf16", "f16"),
    test_sizes=_sizes((1, 1, 1, 2, 1), (2, 7, 33, 6, 5), (3, 50, 130, 20, 70), (2, 1, 65, 32, 16)),
    bench_sizes=_sizes((4, 256, 256, 32, 64), (4, 384, 384, 64, 96), (8, 1, 1024, 64, 128)),
    gpu_bench_sizes=_sizes((8, 2048, 2048, 128, 512), (32, 1, 8192, 128, 1024)),
    make_inputs=make_inputs,
    outputs=outputs,
    reference=reference,
    cost=cost,
    tolerance=tolerance,
    ideal_bytes=ideal_bytes,
    bind={"cpu": bind_cpu, "cuda": binder("cuda", "attention"), "triton": binder("triton", "attention")},
    supports=supports,
)
