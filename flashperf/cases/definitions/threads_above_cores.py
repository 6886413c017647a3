"""More threads than cores: threads wait at barriers for others that are not running."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flashperf.cases.definition import CONTROL, Built, Expectation, OpenCase, Point, Proof
from flashperf.cases.guards import torch_installed


def _make(path: str, sizes: Mapping[str, int], seed: int) -> Built:
    import torch

    from flashperf.environment import usable_cores

    cores = usable_cores()
    threads = 1 if path == "one_thread" else cores * sizes["threads_per_core"]
    n = sizes["n"]
    a, b = (torch.randn(n, n, generator=torch.Generator().manual_seed(seed + side)) for side in range(2))

    def call() -> Any:
        torch.set_num_threads(threads)
        return a @ b

    return Built(
        call=call,
        reference=lambda: a.double() @ b.double(),
        tolerance=1e-5,
        facts={"threads": threads, "cores": cores},
        proof=Proof(ops=("aten::mm",)),
    )


CASE = OpenCase(
    id="A6",
    name="threads-above-cores",
    title="More threads than the container has cores",
    source="ollama/ollama#17916, vllm-project/vllm#49013",
    reported="A container with 4 of 8 cores ran 8 threads: 0.27 tokens a second, against 12 with 4 threads; most "
    "periods of the scheduler were throttled.",
    axis="threads_per_core",
    baseline="one_thread",
    optimised="many_threads",
    make=_make,
    points=(
        Point({"threads_per_core": 1, "n": 64}, 1),
        Point({"threads_per_core": 2, "n": 64}, 2),
        Point({"threads_per_core": 4, "n": 64}, 4),
        Point({"threads_per_core": 1, "n": 512}, 1, CONTROL),
    ),
    headline=2,
    requires=(torch_installed,),
    expectation=Expectation("slower", "more threads than cores"),
)
