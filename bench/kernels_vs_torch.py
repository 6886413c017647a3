"""Our matrix products against torch's, one thread, in pairs: ``python bench/kernels_vs_torch.py [--isa LEVEL]``.

The ratio is torch's time over ours. Targets: f32 and bf16 0.85 (0.60 on the AVX2 path, which is shown against a torch
that may use everything the CPU has), int8 with prepacked weights 0.80. Packing and quantising are rows of their own.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from versus import Call, compare, print_header, print_row

from flashperf import dtypes, native

SQUARE = [(n, n, n) for n in (256, 384, 512, 768, 1024)]
ODD = [(257, 257, 257), (1000, 333, 77), (1000, 77, 333)]
FEW_ROWS = [(m, k, n) for m in (1, 4, 16) for k, n in ((192, 512), (512, 192), (1024, 1024))]
SIZES = SQUARE + ODD + FEW_ROWS
TORCH_TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def from_torch(x: torch.Tensor) -> np.ndarray:
    """The tensor's memory as one of our arrays (bf16 as uint16)."""
    return (
        (x.view(torch.int16) if x.dtype == torch.bfloat16 else x)
        .numpy()
        .view(np.uint16 if x.dtype == torch.bfloat16 else None or x.numpy().dtype)
    )


def float_pair(level: str, dtype: str, layout: str, m: int, k: int, n: int) -> tuple[Call, Call]:
    """Our product and torch's on the same values, outputs written in place on both sides."""
    torch.manual_seed(0)
    x, w = (torch.randn(shape).to(TORCH_TYPES[dtype]) for shape in ((m, k), (k, n)))
    y = torch.empty(m, n, dtype=TORCH_TYPES[dtype])
    library = native.library(level)
    ours_x, ours_w = (dtypes.aligned_copy(a.float().numpy(), dtype) for a in (x, w))
    ours_y = dtypes.aligned_empty((m, n), dtype)
    if layout == "packed":
        group = 2 if dtype == "bf16" else 1
        packed = dtypes.aligned_empty((-(-n // 32), -(-k // group), 32 * group), dtype)
        library.prepare(f"pack_{dtype}", ours_w, packed)()
        ours_w = packed
    ours = library.prepare(f"gemm_{dtype}_{layout}", ours_x, ours_w, ours_y)
    return ours, lambda: torch.mm(x, w, out=y)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--isa", default=native.usable_levels()[-1], choices=native.usable_levels())
    parser.add_argument("--dtype", default="f32,bf16,f16,i8")
    parser.add_argument("--layout", default="blocked,packed")
    args = parser.parse_args()
    torch.set_num_threads(1)
    print_header(args.isa, "torch")
    for dtype in args.dtype.split(","):
        for layout in args.layout.split(","):
            if dtype == "i8":
                continue
            for m, k, n in SIZES:
                print_row(
                    compare(
                        f"gemm_{dtype}_{layout} {m} x {k} x {n}",
                        *float_pair(args.isa, dtype, layout, m, k, n),
                        target=0.85,
                        rounds=7,
                    )
                )
    if "i8" in args.dtype:
        for m, k, n in SIZES:
            q = torch.randint(-127, 128, (m, k), dtype=torch.int8)
            w = torch.randint(-127, 128, (k, n), dtype=torch.int8)
            packed = dtypes.aligned_empty((-(-n // 32), -(-k // 4), 128), "i8")
            sums = np.empty(n, np.int32)
            acc = np.empty((m, n), np.int32)
            L = native.library(args.isa)
            L.prepare("pack_i8", w.numpy(), packed, sums)()
            print_row(
                compare(
                    f"gemm_i8_packed {m} x {k} x {n}",
                    L.prepare("gemm_i8_packed", q.numpy(), packed, sums, acc),
                    lambda: torch._int_mm(q, w),
                    target=0.8,
                    rounds=7,
                )
            )


if __name__ == "__main__":
    main()
