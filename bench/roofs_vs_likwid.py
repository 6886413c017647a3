"""The roofs beside likwid-bench (Debian package likwid) and torch: `python bench/roofs_vs_likwid.py`.

likwid times its kernels itself, so the runs take turns: ours, its, ours, its, ten of each. The kernels have the same
stores and the same vector width. The target is that the medians differ by at most 10 %. Then a check on the other side:
a large product of torch's, which must not be faster than the roof.
"""

from __future__ import annotations

import argparse
import re
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable

import numpy as np

from flashperf import native
from flashperf.environment import usable_cores
from flashperf.roofs.levels import assumed_levels, cache_levels, working_sets
from flashperf.roofs.subject import CHUNK_BYTES, RoofSubject, bind_peak, bind_stream, run_once

RUNS = 10
RUN_S = 0.2
PEAK_BYTES, LIKWID_FLOPS_PER_BYTE = 16_000, 4  # of its peak kernels: what decides how often they repeat
TARGET = 0.10
#: our pattern -> likwid's kernel with the same stores, by the width of our vectors
STREAMS = {
    "load": {"portable": "load_sse", "avx2": "load_avx", "avx512": "load_avx512"},
    "copy": {"portable": "copy_sse", "avx2": "copy_avx", "avx512": "copy_avx512"},
    "copy around caches": {"portable": "copy_mem_sse", "avx2": "copy_mem_avx", "avx512": "copy_mem_avx512"},
    "triad": {"portable": "stream_sp_sse", "avx2": "stream_sp_avx_fma", "avx512": "stream_sp_avx512_fma"},
}
PEAKS = {
    "peak_f32_fma": {"avx2": "peakflops_sp_avx_fma", "avx512": "peakflops_sp_avx512_fma"},
    "peak_f64_fma": {"avx2": "peakflops_avx_fma", "avx512": "peakflops_avx512_fma"},
}


def width(level: str) -> str:
    """The vector width of an instruction-set level, as likwid's names have it."""
    return level if level in ("portable", "avx2") else "avx512"


def likwid(kernel: str, total_bytes: int, threads: int, iterations: int, unit: str) -> float:
    """One run of likwid-bench: bytes/s for "MByte/s", FLOP/s for "MFlops/s".

    Raises RuntimeError with its output if it gives no such figure.
    """
    workgroup = f"N:{total_bytes // 1000}kB:{threads}"
    command = ["likwid-bench", "-t", kernel, "-W", workgroup, "-i", str(iterations)]
    done = subprocess.run(command, capture_output=True, text=True)
    match = re.search(rf"{unit}:\s*([\d.]+)", done.stdout)
    if not match:
        raise RuntimeError(f"{' '.join(command)}: {done.stdout[-200:]}{done.stderr[-200:]}")
    return float(match.group(1)) * 1e6


def long_stream(subject: RoofSubject, pattern: str, thread_bytes: int, threads: int, repeats: int) -> float:
    """Bytes/s of one run of ours that repeats as often as likwid does; no best of several, as likwid has none."""
    parts = subject.parts(thread_bytes, threads)
    bound = [bind_stream(native.library(), pattern, part, repeats) for part in parts]
    seconds = run_once([native.Sequence([call]) for call, _ in bound])
    return sum(n_bytes for _, n_bytes in bound) * repeats / seconds


def long_peak(kernel: str, threads: int, calls: int) -> float:
    """Operations/s of one run of so many calls."""
    bound = [bind_peak(native.library(), kernel) for _ in range(threads)]
    seconds = run_once([native.Sequence([call] * calls) for call, _, _ in bound])
    return sum(int(operations[0]) for _, _, operations in bound) * calls / seconds


def compare(
    name: str, partner: str, ours: Callable[[], float], theirs: Callable[[], float], unit: str
) -> bool:
    """Print the medians of RUNS interleaved runs; whether they are within the target."""
    pairs = []
    try:
        for _ in range(RUNS):
            pairs.append((ours(), theirs()))
    except RuntimeError as error:
        print(f"{name:34} skipped: {error}", flush=True)
        return True
    mine, its = (statistics.median(side) / 1e9 for side in zip(*pairs, strict=True))
    within = abs(mine / its - 1) <= TARGET
    verdict = "ok" if within else "differs"
    print(f"{name:34} {mine:8.1f} {its:8.1f} {unit:8} {mine / its:6.2f} {verdict} ({partner})", flush=True)
    return within


def streams(subject: RoofSubject, level: str, threads: int) -> int:
    """How many of the memory levels and patterns differ by more than the target."""
    wrong = 0
    for working_set in working_sets(cache_levels() or assumed_levels(), threads):
        for pattern, partners in STREAMS.items():
            if pattern == "copy around caches" and working_set.level_bytes:
                continue  # goes around the very level that is measured
            n_bytes, partner = working_set.thread_bytes, partners[width(level)]
            rate = subject.stream(pattern, n_bytes, threads)
            repeats = max(10 if working_set.level_bytes else 2, round(RUN_S * rate / (n_bytes * threads)))
            wrong += not compare(
                f"{working_set.name} {pattern}, {threads} thread{'s' * (threads > 1)}",
                partner,
                lambda n=n_bytes, p=pattern, r=repeats: long_stream(subject, p, n, threads, r),
                lambda n=n_bytes, p=partner, r=repeats: likwid(p, n * threads, threads, r, "MByte/s"),
                "GB/s",
            )
    return wrong


def operations_of(kernel: str) -> int:
    """Operations of one call."""
    call, _, operations = bind_peak(native.library(), kernel)
    call()
    return int(operations[0])


def peaks(subject: RoofSubject, level: str, threads: int) -> int:
    """How many peaks differ by more than the target."""
    wrong = 0
    for kernel, partners in PEAKS.items():
        if kernel in subject.peak_kernels() and width(level) in partners:
            partner, rate = partners[width(level)], subject.peak(kernel, threads)
            calls = max(1, round(RUN_S * rate / threads / operations_of(kernel)))
            iterations = round(RUN_S * rate / threads / LIKWID_FLOPS_PER_BYTE / PEAK_BYTES)
            wrong += not compare(
                f"{kernel}, {threads} thread{'s' * (threads > 1)}",
                partner,
                lambda k=kernel, c=calls: long_peak(k, threads, c),
                lambda p=partner, i=iterations: likwid(p, PEAK_BYTES * threads, threads, i, "MFlops/s"),
                "GFLOP/s",
            )
    return wrong


def torch_below(subject: RoofSubject, threads: int) -> int:
    """How many roofs a product of torch's exceeds by more than the target."""
    try:
        import torch
    except ImportError:
        print("torch's product: skipped, torch is not installed")
        return 0
    torch.set_num_threads(threads)
    wrong = 0
    for name, dtype, kernels in (
        ("f32", torch.float32, ["peak_f32_fma", "peak_f32_simd"]),
        ("bf16", torch.bfloat16, ["peak_bf16_amx", "peak_bf16_dot", "peak_f32_fma"]),
    ):
        kernel = next((k for k in kernels if k in subject.peak_kernels()), "")
        if not kernel:
            continue
        size = 2048
        x = torch.from_numpy(np.random.default_rng(0).standard_normal((size, size), np.float32)).to(dtype)
        reached, roof = 0.0, 0.0
        for _ in range(RUNS):
            start = time.perf_counter()
            torch.mm(x, x)
            reached = max(reached, 2 * size**3 / (time.perf_counter() - start))
            roof = max(roof, subject.peak(kernel, threads))
        verdict = "ok" if reached <= roof * (1 + TARGET) else "above the roof"
        wrong += verdict != "ok"
        said = f"torch {name} product, {threads} thread{'s' * (threads > 1)}"
        print(f"{said:34} {reached / 1e9:8.1f} of {roof / 1e9:.1f} GFLOP/s {verdict} ({kernel})", flush=True)
    return wrong


def main() -> int:
    """Print all comparisons; exit code 1 if one is beyond the target."""
    parser = argparse.ArgumentParser(description="Roofs beside likwid-bench and torch's products.")
    parser.add_argument("--threads", type=int, nargs="*", default=sorted({1, usable_cores()}))
    options = parser.parse_args()
    level = native.default_level()
    sets = working_sets(cache_levels() or assumed_levels(), 1)
    subject = RoofSubject(max(sets[-1].thread_bytes, CHUNK_BYTES))
    wrong = 0
    print(f"{'':34} {'ours':>8} {'likwid':>8} {'':8} {'ratio':>6}")
    for threads in options.threads:
        if shutil.which("likwid-bench"):
            wrong += streams(subject, level, threads) + peaks(subject, level, threads)
        else:
            print("skipped: no likwid-bench (Debian: apt-get install likwid)")
        wrong += torch_below(subject, threads)
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
