"""Row-wise, attention and streaming kernels beside torch's and likwid-bench's, one thread, in pairs.

``python bench/rowwise_vs_torch.py [--isa LEVEL] [--part rows,attention,streaming]``. The ratio is their time
over ours. Targets: softmax and erf-GELU as fast as torch eager, RMSNorm as fast as torch's native layer norm
(with the residual: as its addition and layer norm), streaming kernels 0.85 of likwid-bench's kernel with the
same stores. Attention is shown for information.
"""

from __future__ import annotations

import argparse
import functools
import math

import likwid
import numpy as np
import torch
from torch.nn import functional as F  # noqa: N812 - its usual name
from versus import Call, compare, print_header, print_row, print_skipped

from flashperf import dtypes, native

#: From one row to more than the L2 cache.
SHAPES = [(1, 256), (16, 256), (64, 1024), (256, 2048), (1024, 4096)]
TORCH_TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
EPS = 1e-5


def pair(shape: tuple[int, ...], dtype: str, seed: int) -> tuple[np.ndarray, torch.Tensor]:
    """The same random values as one of our arrays and as a tensor, in memory of their own."""
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    ours = dtypes.aligned_copy(values, dtype)
    return ours, torch.from_numpy(dtypes.widen(ours, dtype)).to(TORCH_TYPES[dtype])


def row_sides(
    library: native.Library, dtype: str, r: int, c: int
) -> dict[str, tuple[Call, Call, float | None]]:
    """Operator -> our fused kernel, what eager torch runs for it, the target."""
    (x, tx), (delta, td), (weight, tw) = (pair(s, dtype, i) for i, s in enumerate([(r, c), (r, c), (c,)]))
    y, total = np.empty_like(x), np.empty_like(x)
    flat = [a.reshape(-1) for a in (x, delta, y)]
    norm = functools.partial(F.layer_norm, normalized_shape=(c,), weight=tw)

    def ours(kernel: str, *arrays: np.ndarray, **scalars: float) -> Call:
        return library.prepare(f"{kernel}_{dtype}", *arrays, **scalars)

    in_place = ours("residual_rmsnorm", x.copy(), delta, weight, y, eps=EPS)
    return {
        "softmax": (ours("softmax", x, y), lambda: torch.softmax(tx, -1), 1.0),
        "gelu": (ours("gelu", flat[0], flat[2]), lambda: F.gelu(tx), 1.0),
        "bias_gelu": (ours("bias_gelu", x, weight, y), lambda: F.gelu(tx + tw), 1.0),
        "swiglu": (ours("swiglu", *flat), lambda: F.silu(tx) * td, None),
        "rmsnorm / layer_norm": (ours("rmsnorm", x, weight, y, eps=EPS), lambda: norm(tx), 1.0),
        "add_rmsnorm / add, layer_norm": (
            ours("add_rmsnorm", x, delta, weight, total, y, eps=EPS),
            lambda: norm(tx + td),
            1.0,
        ),
        # no target: two arrays more to read and write, level only where all of them are in a cache
        "residual_rmsnorm / layer_norm": (in_place, lambda: norm(tx), None),
    }


def rows(library: native.Library, dtype: str) -> None:
    """Each fused operator against what eager torch runs for it."""
    for r, c in SHAPES:
        for name, (ours, theirs, target) in row_sides(library, dtype, r, c).items():
            print_row(compare(f"{name} {dtype} {r}x{c}", ours, theirs, target if dtype == "f32" else None))


#: rows, keys, heads, head dimension; the rows are the last of the keys
ATTENTION = [(128, 128, 8, 32), (512, 512, 8, 64), (16, 512, 8, 64), (1, 128, 8, 32), (1, 2048, 8, 64)]


def attention(library: native.Library, dtype: str) -> None:
    """Online attention beside scaled_dot_product_attention, causal."""
    for m, keys, heads, e in ATTENTION:
        (q, tq), (k, tk), (v, tv) = (
            pair(s, dtype, i) for i, s in enumerate([(m, heads, e), (1, heads, keys, e), (1, heads, keys, e)])
        )
        slot, position = np.zeros(m, np.int32), np.arange(keys - m, keys, dtype=np.int32)
        scale = 1 / math.sqrt(e)
        y = np.empty_like(q)
        ours = library.prepare(f"attention_online_{dtype}", q, k, v, slot, position, y, window=0, scale=scale)
        queries = tq.transpose(0, 1)[None].contiguous()
        mask = None if m in (1, keys) else torch.ones(m, keys, dtype=torch.bool).tril(keys - m)
        theirs = functools.partial(
            F.scaled_dot_product_attention, queries, tk, tv, attn_mask=mask, is_causal=m == keys and m > 1
        )
        print_row(compare(f"attention {dtype} rows={m} keys={keys} heads={heads}x{e}", ours, theirs))


def streaming(library: native.Library) -> None:
    """Streaming kernels against likwid-bench's of the same stores, in the L2 cache and in memory."""
    reason = likwid.why_not()
    for kernel in likwid.PARTNERS:
        for size_bytes in likwid.SIZES_BYTES:
            name = f"{kernel} {size_bytes // 1024} KiB"
            if reason:
                print_skipped(name, reason)
            elif kernel != "copy_stream_f32" or size_bytes == likwid.SIZES_BYTES[-1]:
                likwid.print_comparison(library, kernel, size_bytes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--isa", default=native.usable_levels()[-1], choices=native.usable_levels())
    parser.add_argument("--dtype", default="f32,bf16,f16")
    parser.add_argument("--part", default="rows,attention,streaming")
    args = parser.parse_args()
    torch.set_num_threads(1)
    library = native.library(args.isa)
    parts = args.part.split(",")
    print_header(args.isa, "torch")
    for dtype in args.dtype.split(","):
        if "rows" in parts:
            rows(library, dtype)
        if "attention" in parts:
            attention(library, dtype)
    if "streaming" in parts:
        print_header(args.isa, "likwid")
        streaming(library)


if __name__ == "__main__":
    main()
