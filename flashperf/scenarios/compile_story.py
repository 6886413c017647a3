"""What torch.compile does to the first calls and to the later ones: told call by call, in a process of its own."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

#: mode -> torch.compile's ``dynamic``; eager is not compiled.
MODES: dict[str, bool | None] = {"static": False, "automatic": None, "dynamic": True}
EAGER = "eager"
WIDTH = 256
STEADY_CALLS = 200


def model(name: str, seed: int) -> Callable[[Any], Any]:
    """mlp: two products, which a library does anyway; chain: twenty elementwise operators, which fuse."""
    import torch

    torch.manual_seed(seed)
    if name == "mlp":
        return torch.nn.Sequential(
            torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, WIDTH)
        ).eval()

    def chain(x: Any) -> Any:
        for _ in range(10):
            x = torch.relu(x * 0.9 + 0.1)
        return x

    return chain


def told(mode: str, name: str, lengths: Sequence[int], seed: int) -> dict[str, Any]:
    """Seconds of a call at each length in turn, compilations, and the median of later calls at the last length.

    The compiler is started by another function before, so that starting it is charged to no mode. Results are
    compared with the uncompiled ones. Raises RuntimeError where they differ, or where nothing was compiled.
    """
    import torch
    from torch._dynamo.utils import counters
    from torch._inductor import config

    plain = model(name, seed)
    inputs = [torch.randn(length, WIDTH) for length in lengths]
    run = plain
    if mode != EAGER:
        torch.compile(lambda x: x.sin() + 1)(torch.zeros(8))
        counters.clear()
        config.force_disable_caches = True  # what an earlier process compiled must not be found
        run = torch.compile(plain, dynamic=MODES[mode])
    times = []
    with torch.no_grad():
        for x in inputs:
            begin = time.perf_counter()
            result = run(x)
            times.append(time.perf_counter() - begin)
            if not torch.allclose(result, plain(x), rtol=1e-3, atol=1e-4):
                raise RuntimeError(f"{name} compiled {mode} gives another result at length {len(x)}")
        steady = [_timed(run, inputs[-1]) for _ in range(STEADY_CALLS)]
    compiled = int(counters["stats"]["unique_graphs"]) if mode != EAGER else 0
    if mode != EAGER and not compiled:
        raise RuntimeError(f"{name}: torch.compile compiled nothing")
    return {"times_s": times, "steady_s": statistics.median(steady), "compilations": compiled}


def _timed(run: Callable[[Any], Any], x: Any) -> float:
    begin = time.perf_counter()
    run(x)
    return time.perf_counter() - begin


class CompileSubject:
    """A process that compiles once and tells."""

    def __init__(self, seed: int) -> None:
        import torch

        torch.set_num_threads(1)
        self.seed = seed

    def tell(self, mode: str, model: str, lengths: list[int]) -> dict[str, Any]:
        """As ``told``."""
        return told(mode, model, lengths, self.seed)
