"""Our matrix products beside torch's, one thread, in pairs.

``python bench/kernels_vs_torch.py [--isa LEVEL] [--full-torch] [--part blocked,packed,int8,untuned,alone]``. The
ratio is torch's time over ours. Targets: row-major products 0.85 (0.60 at level avx2; bf16 only where the CPU has
AVX512-BF16), int8 with prepacked weights 0.80 (where it has VNNI). Prepacked float weights are shown for information,
packing and quantising as rows of their own. At a level below the CPU's best, torch is held to the same instruction
sets, by the variables that its libraries read when they start; --full-torch leaves it free.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable

import numpy as np
import torch
from versus import Call, compare, print_alone, print_header, print_row, print_skipped

from flashperf import dtypes, native

SQUARE = [(n, n, n) for n in (256, 384, 512, 768, 1024)]
ODD = [(257, 257, 257), (1000, 333, 77), (1000, 77, 333), (1000, 1000, 1000)]
FEW_ROWS = [(m, k, n) for m in (1, 4, 16) for k, n in ((192, 512), (512, 192), (1024, 1024))]
SIZES = SQUARE + ODD + FEW_ROWS
TORCH_TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}

#: ATen, MKL and oneDNN each choose by themselves; values that keep them to a level of ours.
_LIMITS = ("ATEN_CPU_CAPABILITY", "MKL_ENABLE_INSTRUCTIONS", "ONEDNN_MAX_CPU_ISA")
TORCH_LIMITS = {
    "avx2": ("avx2", "AVX2", "AVX2"),
    "avx512": ("avx512", "AVX512", "AVX512_CORE"),
    "avx512_vnni": ("avx512", "AVX512", "AVX512_CORE_VNNI"),
    "avx512_bf16": ("avx512", "AVX512", "AVX512_CORE_BF16"),
}


def float_arrays(dtype: str, m: int, k: int, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x, w and an output of a type."""
    rng = np.random.default_rng(0)
    x, w = (
        dtypes.aligned_copy(rng.standard_normal(shape).astype(np.float32), dtype)
        for shape in ((m, k), (k, n))
    )
    return x, w, dtypes.aligned_empty((m, n), dtype)


def packed(library: native.Library, w: np.ndarray, dtype: str) -> list[np.ndarray]:
    """w in panels, and for int8 the sums of its columns."""
    k, n = w.shape
    group = {"bf16": 2, "i8": 4}.get(dtype, 1)
    out = [dtypes.aligned_empty((-(-n // 32), -(-k // group), 32 * group), dtype)]
    if dtype == "i8":
        out.append(np.empty(n, np.int32))
    library.prepare(f"pack_{dtype}", w, *out)()
    return out


def as_tensor(values: np.ndarray, dtype: str) -> torch.Tensor:
    return torch.from_numpy(dtypes.widen(values, dtype)).to(TORCH_TYPES[dtype])


def float_pair(library: native.Library, dtype: str, layout: str, m: int, k: int, n: int) -> tuple[Call, Call]:
    """Our product and torch's on the same values, each written to an output of its own."""
    x, w, y = float_arrays(dtype, m, k, n)
    right = packed(library, w, dtype) if layout == "packed" else [w]
    ours = library.prepare(f"gemm_{dtype}_{layout}", x, *right, y)
    tx, tw = as_tensor(x, dtype), as_tensor(w, dtype)
    ty = torch.empty(m, n, dtype=TORCH_TYPES[dtype])
    return ours, lambda: torch.mm(tx, tw, out=ty)


def target_of(level: str, dtype: str) -> float | None:
    """The ratio to reach, where there is one."""
    if dtype == "f32":
        return {"portable": None, "avx2": 0.6}.get(level, 0.85)
    return 0.85 if dtype == "bf16" and level in ("avx512_bf16", "amx") else None


def float_products(library: native.Library, layout: str) -> None:
    """f32, bf16 and f16 beside torch.mm."""
    for dtype in ("f32", "bf16", "f16"):
        if dtype != "f32" and os.environ.get("ONEDNN_MAX_CPU_ISA") == "AVX2":
            print_skipped(
                f"{dtype} {layout}", "held to AVX2, torch multiplies it in plain loops, 40 times slower"
            )
            continue
        target = target_of(library.level, dtype) if layout == "blocked" else None
        for m, k, n in SIZES:
            sides = float_pair(library, dtype, layout, m, k, n)
            print_row(compare(f"{dtype} {layout} {m} x {k} x {n}", *sides, target))


def int8_arrays(m: int, k: int, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    q, w = (rng.integers(-127, 128, shape, dtype=np.int8) for shape in ((m, k), (k, n)))
    return q, w, dtypes.aligned_empty((m, n), "i32")


def int8_products(library: native.Library) -> None:
    """int8 with prepacked weights beside torch._int_mm."""
    if not hasattr(torch, "_int_mm"):
        return print_skipped("int8 packed", f"torch {torch.__version__} has no _int_mm")
    target = 0.8 if library.level in ("avx512_vnni", "avx512_bf16", "amx") else None
    for m, k, n in SIZES:
        q, w, acc = int8_arrays(m, k, n)
        ours = library.prepare("gemm_i8_packed", q, *packed(library, w, "i8"), acc)
        tq, tw = torch.from_numpy(q), torch.from_numpy(w)
        theirs: Call = lambda tq=tq, tw=tw: torch._int_mm(tq, tw)  # noqa: E731
        print_row(compare(f"int8 packed {m} x {k} x {n}", ours, theirs, target))


def untuned_products(library: native.Library) -> None:
    """What the untuned tile takes beside the packed product: the ratio is untuned / ours."""
    print_header(library.level, "untuned")
    for dtype in ("f32", "bf16", "f16", "i8"):
        for m, k, n in ((1, 192, 512), (1, 1024, 1024), (16, 192, 512), (128, 192, 576), (512, 512, 512)):
            x, w, y = int8_arrays(m, k, n) if dtype == "i8" else float_arrays(dtype, m, k, n)
            ours = library.prepare(f"gemm_{dtype}_packed", x, *packed(library, w, dtype), y)
            untuned = library.prepare(f"gemm_{dtype}_bad_tile", x, w, y.copy())
            print_row(compare(f"{dtype} packed, untuned {m} x {k} x {n}", ours, untuned))


def alone(library: native.Library) -> None:
    """Packing, quantising and casting, by themselves."""
    for k, n in ((192, 512), (1024, 1024)):
        for dtype in ("f32", "bf16", "f16", "i8"):
            w = int8_arrays(1, k, n)[1] if dtype == "i8" else float_arrays(dtype, 1, k, n)[1]
            out = packed(library, w, dtype)
            call = library.prepare(f"pack_{dtype}", w, *out)
            print_alone(f"pack_{dtype} {k} x {n}", call, w.nbytes + sum(a.nbytes for a in out))
    for m, k in ((1, 192), (128, 1024)):
        x, q, scale = float_arrays("f32", m, k, 1)[0], np.empty((m, k), np.int8), np.empty(m, np.float32)
        n_bytes = x.nbytes + q.nbytes
        dynamic = library.prepare("quantize_rows_f32", x, q, scale)
        print_alone(f"quantize_rows_f32 {m} x {k}", dynamic, n_bytes)
        static = library.prepare("quantize_rows_static_f32", x, q, scale=0.02)
        print_alone(f"quantize_rows_static_f32 {m} x {k}", static, n_bytes)


PARTS: dict[str, Callable[[native.Library], None]] = {
    "blocked": lambda library: float_products(library, "blocked"),
    "packed": lambda library: float_products(library, "packed"),
    "int8": int8_products,
    "untuned": untuned_products,
    "alone": alone,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--isa", default=native.usable_levels()[-1], choices=native.usable_levels())
    parser.add_argument("--full-torch", action="store_true", help="do not hold torch to the level")
    parser.add_argument("--part", default=",".join(PARTS), help="of " + ", ".join(PARTS))
    args = parser.parse_args()
    limits = dict(zip(_LIMITS, TORCH_LIMITS.get(args.isa, ()), strict=False))
    limited = bool(limits) and not args.full_torch and args.isa != native.usable_levels()[-1]
    if limited and any(os.environ.get(name) != value for name, value in limits.items()):
        os.environ.update(limits)
        os.execv(sys.executable, [sys.executable, *sys.argv])
    torch.set_num_threads(1)
    held = f"held to {args.isa}" if limited else "free to use all that the CPU has"
    print(f"torch {torch.__version__}, {held}; one thread; m x k x n")
    print_header(args.isa, "torch")
    for part in args.part.split(","):
        PARTS[part](native.library(args.isa))


if __name__ == "__main__":
    main()
