"""A sequence that grows by one each call: compiled code that is compiled again."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from flashperf.cases.definition import Built, Expectation, OpenCase, Point
from flashperf.cases.guards import cxx_compiler, torch_installed

_DYNAMIC: dict[str, bool | None] = {"compiled": None, "compiled_dynamic": True, "compiled_static": False}
_WIDTH = 256
STEADY_CALLS = 300


def story(path: str, lengths: range, seed: int) -> dict[str, Any]:
    """Seconds of each call from the first on, compilations, and the median seconds of calls at the last length.

    The compiler is started by another function before, so that starting it is charged to no path.
    """
    import statistics

    import torch
    from torch._dynamo.utils import counters
    from torch._inductor import config as inductor

    torch.manual_seed(seed)
    model = torch.nn.Sequential(
        torch.nn.Linear(_WIDTH, _WIDTH), torch.nn.ReLU(), torch.nn.Linear(_WIDTH, _WIDTH)
    ).eval()
    inputs = [torch.randn(length, _WIDTH) for length in lengths]
    run: Any = model
    if path != "eager":
        torch.compile(lambda x: x.sin() + 1)(torch.zeros(8))
        counters.clear()
        inductor.force_disable_caches = True  # what an earlier process compiled must not be found
        run = torch.compile(model, dynamic=_DYNAMIC[path])
    times, worst = [], 0.0
    with torch.no_grad():
        for x in inputs:
            begin = time.perf_counter()
            result = run(x)
            times.append(time.perf_counter() - begin)
            worst = max(worst, float((result - model(x)).abs().max()))
        steady = []
        for _ in range(STEADY_CALLS):
            begin = time.perf_counter()
            run(inputs[-1])
            steady.append(time.perf_counter() - begin)
    return {
        "times_s": times,
        "steady_s": statistics.median(steady),
        "compilations": int(counters["stats"]["unique_graphs"]) if path != "eager" else 0,
        "worst_error": worst,
    }


def _make(path: str, sizes: Mapping[str, int], seed: int) -> Built:
    return Built(call=lambda: story(path, range(sizes["shortest"], sizes["longest"] + 1), seed))


CASE = OpenCase(
    id="A9",
    name="recompiled-lengths",
    title="Compiled code and a length that grows",
    source="pytorch/pytorch#149582",
    reported="Thirty calls with growing length: 21 ms each in eager mode; compiled, the fastest took 9 ms and the mean "
    "was 6 s.",
    axis="longest",
    baseline="eager",
    optimised="compiled",
    make=_make,
    points=(Point({"shortest": 3, "longest": 22}, 22),),
    requires=(torch_installed, cxx_compiler),
    fresh=True,
    expectation=Expectation("slower", "recompilation"),
)
