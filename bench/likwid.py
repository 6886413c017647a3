"""likwid-bench (Debian package likwid) as the other side of our streaming kernels.

It measures its kernels itself, so the runs alternate: ours, its, ours, its, each about 0.2 s long. Both count
the bytes that the program loads and stores; the line that a cached store reads first is in neither number.
"""

from __future__ import annotations

import os
import re
import shutil
import statistics
import subprocess
import time

from versus import print_skipped

from flashperf import native
from flashperf.dtypes import aligned_empty

TARGET = 0.85
RUNS = 10
RUN_S = 0.2
SIZES_BYTES = (512 * 1024, 256 * 1024 * 1024)  # all arrays together: in the L2 cache, in memory
#: Our kernel: (arrays, likwid's kernel by the width of our vectors)
PARTNERS = {
    "copy_f32": (2, {"portable": "copy_sse", "avx2": "copy_avx", "avx512": "copy_avx512"}),
    "copy_stream_f32": (2, {"portable": "copy_mem_sse", "avx2": "copy_mem_avx", "avx512": "copy_mem_avx512"}),
    "triad_f32": (
        3,
        {"portable": "stream_sp_sse", "avx2": "stream_sp_avx_fma", "avx512": "stream_sp_avx512_fma"},
    ),
    "read_sum_f32": (1, {"portable": "sum_sp_sse", "avx2": "sum_sp_avx", "avx512": "sum_sp_avx512"}),
}

#: NumPy asks for huge pages; by this glibc's malloc does too, so that both walk through the same pages of memory.
_HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


def why_not() -> str:
    """Empty if likwid-bench is here, else the reason why not."""
    return "" if shutil.which("likwid-bench") else "no likwid-bench (Debian: apt-get install likwid)"


def partner(kernel: str, level: str) -> str:
    """likwid's kernel with the same stores and vectors as ours at an instruction-set level."""
    by_width = PARTNERS[kernel][1]
    return by_width[level if level in by_width else "avx512"]


def run_once(
    kernel: str, total_bytes: int, iterations: int, threads: int = 1, unit: str = "MByte/s"
) -> float:
    """One run of likwid-bench: bytes/s for "MByte/s", FLOP/s for "MFlops/s".

    Raises RuntimeError with its output if it gives no such figure.
    """
    workgroup = f"N:{total_bytes // 1000}kB:{threads}"
    command = ["likwid-bench", "-t", kernel, "-W", workgroup, "-i", str(iterations)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **_HUGE_PAGES})
    match = re.search(rf"{unit}:\s*([\d.]+)", done.stdout)
    if not match:
        raise RuntimeError(f"{' '.join(command)}: {done.stdout[-200:]}{done.stderr[-200:]}")
    return float(match.group(1)) * 1e6


def bound(library: native.Library, kernel: str, size_bytes: int) -> tuple[native.Call, int]:
    """Our call on arrays of ``size_bytes`` together, and the bytes that one call loads and stores."""
    count = PARTNERS[kernel][0]
    arrays = [aligned_empty((size_bytes // 4 // count,), "f32") for _ in range(count)]
    for array in arrays:
        array[...] = 1.0
    moved = sum(array.nbytes for array in arrays)
    if kernel == "read_sum_f32":
        arrays.append(aligned_empty((1,), "f32"))
    scalars = {"factor": 3.0} if kernel == "triad_f32" else {}
    return library.prepare(kernel, *arrays, **scalars), moved


def print_comparison(library: native.Library, kernel: str, size_bytes: int) -> None:
    """The line of one kernel: GB/s of both, median ratio of the interleaved runs, verdict."""
    theirs = partner(kernel, library.level)
    name = f"{kernel} {size_bytes // 1024} KiB"
    call, moved = bound(library, kernel, size_bytes)
    call()
    start = time.perf_counter()
    call()
    calls = max(1, round(RUN_S / max(time.perf_counter() - start, 1e-7)))
    pairs = []
    for _ in range(RUNS):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        ours = moved * calls / (time.perf_counter() - start)
        try:
            pairs.append((ours, run_once(theirs, size_bytes, max(10, calls))))
        except RuntimeError as error:
            print_skipped(name, str(error))
            return
    ratio = statistics.median(a / b for a, b in pairs)
    ours, other = (statistics.median(side) / 1e9 for side in zip(*pairs, strict=True))
    verdict = "ok" if ratio >= TARGET else "below"
    print(
        f"{name:44} {ours:7.1f} GB/s {other:7.1f} GB/s {ratio:7.2f} {TARGET:7.2f} {verdict} ({theirs})",
        flush=True,
    )
