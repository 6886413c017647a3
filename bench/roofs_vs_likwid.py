"""The roofs beside likwid-bench (Debian package likwid) and torch: `python bench/roofs_vs_likwid.py`.

likwid times its kernels itself, so the runs take turns: ours, its, ours, its, ten of each. The kernels have the same
stores and the same vector width. The target is that the medians differ by at most 10 %. Then a check on the other side:
a large product of torch's, whose best run must not be faster than the roof's.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import likwid
import numpy as np

from flashperf import environment, native
from flashperf.environment import usable_cores
from flashperf.errors import UserError
from flashperf.roofs.levels import assumed_levels, cache_levels, working_sets
from flashperf.roofs.subject import CHUNK_BYTES, RoofSubject, bind_peak, bind_stream, run_once
from flashperf.store import RecordWriter, from_json, read_records

RUNS = 10
RUN_S = 0.2
PEAK_BYTES, LIKWID_FLOPS_PER_BYTE = 16_000, 4  # of its peak kernels: what decides how often they repeat
TARGET = 0.10
TORCH_SIZE = 2048
#: our pattern -> likwid's kernel with the same stores, by the width of our vectors
STREAMS = {
    "load": {"portable": "load_sse", "avx2": "load_avx", "avx512": "load_avx512"},
    "copy": {"portable": "copy_sse", "avx2": "copy_avx", "avx512": "copy_avx512"},
    "copy around caches": {"portable": "copy_mem_sse", "avx2": "copy_mem_avx", "avx512": "copy_mem_avx512"},
    "update": {"portable": "update_sp_sse", "avx2": "update_sp_avx", "avx512": "update_sp_avx512"},
    "triad": {"portable": "stream_sp_sse", "avx2": "stream_sp_avx_fma", "avx512": "stream_sp_avx512_fma"},
}
PEAKS = {
    "peak_f32_fma": {"avx2": "peakflops_sp_avx_fma", "avx512": "peakflops_sp_avx512_fma"},
    "peak_f64_fma": {"avx2": "peakflops_avx_fma", "avx512": "peakflops_avx512_fma"},
}


def width(level: str) -> str:
    """The vector width of an instruction-set level, as likwid's names have it."""
    return level if level in ("portable", "avx2") else "avx512"


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


@dataclass(frozen=True)
class Row:
    """RUNS interleaved runs of one kernel of ours and of its partner, in GB/s or GFLOP/s; or why there are fewer.

    at_most: only a partner that is faster is wrong (a library under a roof)
    """

    name: str
    partner: str
    unit: str
    ours: tuple[float, ...] = ()
    theirs: tuple[float, ...] = ()
    at_most: bool = False
    skipped: str = ""

    def middle(self, runs: tuple[float, ...]) -> float:
        """The median; where theirs must stay below, the best."""
        return max(runs) if self.at_most else statistics.median(runs)

    @property
    def ratio(self) -> float:
        """Ours over theirs."""
        return self.middle(self.ours) / self.middle(self.theirs)

    @property
    def is_right(self) -> bool:
        """Within the target, or not compared."""
        if self.skipped:
            return True
        return self.ratio >= 1 / (1 + TARGET) if self.at_most else abs(self.ratio - 1) <= TARGET

    def __str__(self) -> str:
        if self.skipped:
            after = f" after {len(self.ours)} of {RUNS} runs" if self.ours else ""
            return f"{self.name:36} skipped{after}: {self.skipped}"
        values = (
            f"{self.middle(self.ours):8.1f} {self.middle(self.theirs):8.1f} {self.unit:8} {self.ratio:5.2f}"
        )
        verdict = "ok" if self.is_right else "above the roof" if self.at_most else "differs"
        return f"{self.name:36} {values}  {verdict:8} {self.partner}"


def threads_of(number: int) -> str:
    """``2 threads``."""
    return f"{number} thread{'s' * (number > 1)}"


def compare(
    name: str, partner: str, ours: Callable[[], float], theirs: Callable[[], float], unit: str
) -> Row:
    """RUNS interleaved runs of both."""
    pairs, why = [], ""
    try:
        for _ in range(RUNS):
            pairs.append((ours() / 1e9, theirs() / 1e9))
    except RuntimeError as error:
        why = " ".join(str(error).split())
    mine, its = zip(*pairs, strict=True) if pairs else ((), ())
    return Row(name, partner, unit, mine, its, skipped=why)


def streams(subject: RoofSubject, level: str, threads: int) -> Iterator[Row]:
    """Every memory level and pattern."""
    for working_set in working_sets(cache_levels() or assumed_levels(), threads):
        for pattern, partners in STREAMS.items():
            if pattern == "copy around caches" and working_set.level_bytes:
                continue  # goes around the very level that is measured
            n_bytes, partner = working_set.thread_bytes, partners[width(level)]
            rate = subject.stream(pattern, n_bytes, threads)
            repeats = max(10 if working_set.level_bytes else 2, round(RUN_S * rate / (n_bytes * threads)))
            yield compare(
                f"{working_set.name} {pattern}, {threads_of(threads)}",
                partner,
                lambda n=n_bytes, p=pattern, r=repeats: long_stream(subject, p, n, threads, r),
                lambda n=n_bytes, p=partner, r=repeats: likwid.run_once(p, n * threads, r, threads),
                "GB/s",
            )


def operations_of(kernel: str) -> int:
    """Operations of one call."""
    call, _, operations = bind_peak(native.library(), kernel)
    call()
    return int(operations[0])


def peaks(subject: RoofSubject, level: str, threads: int) -> Iterator[Row]:
    """Every peak that likwid has a kernel for."""
    for kernel, partners in PEAKS.items():
        if kernel in subject.peak_kernels() and width(level) in partners:
            partner, rate = partners[width(level)], subject.peak(kernel, threads)
            calls = max(1, round(RUN_S * rate / threads / operations_of(kernel)))
            iterations = round(RUN_S * rate / threads / LIKWID_FLOPS_PER_BYTE / PEAK_BYTES)
            yield compare(
                f"{kernel}, {threads_of(threads)}",
                partner,
                lambda k=kernel, c=calls: long_peak(k, threads, c),
                lambda p=partner, i=iterations: likwid.run_once(
                    p, PEAK_BYTES * threads, i, threads, "MFlops/s"
                ),
                "GFLOP/s",
            )


def torch_below(subject: RoofSubject, threads: int) -> Iterator[Row]:
    """Roofs of arithmetic, and torch's products below them."""
    try:
        import torch
    except ImportError:
        yield Row("torch's product", "torch.mm", "GFLOP/s", skipped="torch is not installed")
        return
    torch.set_num_threads(threads)
    for name, dtype, kernels in (
        ("f32", torch.float32, ["peak_f32_fma", "peak_f32_simd"]),
        ("bf16", torch.bfloat16, ["peak_bf16_amx", "peak_bf16_dot", "peak_f32_fma"]),
    ):
        kernel = next((k for k in kernels if k in subject.peak_kernels()), "")
        if not kernel:
            continue
        random = np.random.default_rng(0).standard_normal((TORCH_SIZE, TORCH_SIZE), np.float32)
        x = torch.from_numpy(random).to(dtype)

        def reached(x: torch.Tensor = x) -> float:
            start = time.perf_counter()
            torch.mm(x, x)
            return 2 * TORCH_SIZE**3 / (time.perf_counter() - start)

        row = compare(
            f"{kernel}, {threads_of(threads)}",
            f"torch.mm {name}",
            lambda k=kernel: subject.peak(k, threads),
            reached,
            "GFLOP/s",
        )
        yield dataclasses.replace(row, at_most=True)


def all_rows(thread_counts: list[int]) -> Iterator[Row]:
    """Every comparison, one after the other."""
    level = native.default_level()
    sets = working_sets(cache_levels() or assumed_levels(), 1)
    subject = RoofSubject(max(sets[-1].thread_bytes, CHUNK_BYTES))
    for threads in thread_counts:
        if why := likwid.why_not():
            yield Row(f"roofs, {threads_of(threads)}", "likwid-bench", "", skipped=why)
        else:
            yield from streams(subject, level, threads)
            yield from peaks(subject, level, threads)
        yield from torch_below(subject, threads)


def main() -> int:
    """Print all comparisons; exit code 1 if one just measured is beyond the target, or none could be measured."""
    parser = argparse.ArgumentParser(description="Roofs beside likwid-bench and torch's products.")
    parser.add_argument("--threads", type=int, nargs="*", default=sorted({1, usable_cores()}))
    parser.add_argument("--record", type=Path, help="keep all runs in a file")
    parser.add_argument("--from", dest="source", type=Path, help="measure nothing: print a record")
    options = parser.parse_args()
    rows = all_rows(options.threads)
    if options.source:
        try:
            rows = iter([from_json(Row, line["row"]) for line in read_records(options.source).of("row")])
        except UserError as error:
            parser.error(str(error))
    wrong = compared = 0
    print(f"{'kernel':36} {'ours':>8} {'theirs':>8} {'':8} {'ratio':>5}")
    with RecordWriter(options.record) if options.record else nullcontext() as writer:
        if writer:
            writer.write("environment", environment=environment.capture())
        for row in rows:
            print(row, flush=True)
            wrong += not row.is_right
            compared += not row.skipped
            if writer:
                writer.write("row", row=row)
    if not compared:
        print("nothing was compared")
    return int((wrong > 0 or not compared) and not options.source)


if __name__ == "__main__":
    raise SystemExit(main())
