"""How much of the copies computing hides, against rows that share a weight: the mechanism overlap, taken apart.

``python bench/overlap_fraction.py [--k K] [--n N] [--layers L]``. The fraction is the time in which copy and product
both ran over the time in copies, the first layer's left out, which has nothing to hide behind. Copies in memory stand
in for a link, and copy and product share this machine's memory.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

import numpy as np

from flashperf import native
from flashperf.beside import Span, overlap_fraction, run_beside
from flashperf.mechanisms import _layers, overlap
from flashperf.records import Case

ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
HIDDEN = 0.9  # of the copies: nearly all
SAMPLES = 15


def sample(thread: native.Background, parts: list[tuple[Any, Any]]) -> tuple[float, float, float]:
    """(overlap fraction, seconds, GB/s of the copies) of one run."""
    computed: list[Span] = []
    moved: list[int] = []

    def step(product: Any) -> None:
        begin = time.perf_counter_ns()
        product()
        computed.append((begin, time.perf_counter_ns()))

    begin = time.perf_counter()
    copies = run_beside(thread, parts, step)
    seconds = time.perf_counter() - begin
    moved += [end - start for start, end in copies]
    return overlap_fraction(copies[1:], computed), seconds, float(np.mean(moved))


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--k", type=int, default=512)
    parser.add_argument("--n", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=8)
    options = parser.parse_args()
    if options.layers < 2:
        parser.error("--layers must be at least 2: the first has nothing to hide behind")
    if len(os.sched_getaffinity(0)) < 2:
        print("one core only: copy and product take turns on it, and nothing can be hidden")
    thread = native.Background()
    print(f"{'rows':>6}{'FLOP/byte':>12}{'hidden':>10}{'time':>12}{'copies':>12}")
    enough = None
    for rows in ROWS:
        sizes = {"layers": options.layers, "m": rows, "k": options.k, "n": options.n}
        case = Case.of("overlap", "overlapped", "cpu", "f32", sizes)
        inputs = _layers.make_inputs(case)
        spec = _layers.outputs(case)["y"]
        parts = overlap.bind_parts(case, inputs, {"y": np.zeros(spec.shape, np.float32)})
        run_beside(thread, parts, lambda product: product())
        hidden, seconds, copy_ns = np.median([sample(thread, parts) for _ in range(SAMPLES)], axis=0)
        intensity = 2 * rows * options.k * options.n / _layers.weight_bytes(case)
        rate = _layers.weight_bytes(case) / copy_ns
        print(f"{rows:>6}{intensity:>12.1f}{hidden:>10.0%}{1e3 * seconds:>9.2f} ms{rate:>7.1f} GB/s")
        enough = (enough or intensity) if hidden >= HIDDEN else None
    if enough is None:
        print(f"no amount of work here hides {HIDDEN:.0%} of the copies")
    else:
        print(f"from {enough:g} FLOP per byte on, {HIDDEN:.0%} of the copies or more are hidden")


if __name__ == "__main__":
    main()
