"""A sequence that grows by one each call: compiled code that is compiled again."""

from __future__ import annotations

from collections.abc import Mapping

from flashperf.cases.definition import Built, Expectation, OpenCase, Point
from flashperf.cases.guards import cxx_compiler, torch_installed
from flashperf.scenarios.compile_story import EAGER, told


def _make(path: str, sizes: Mapping[str, int], seed: int) -> Built:
    mode = EAGER if path == EAGER else "automatic"
    lengths = range(sizes["shortest"], sizes["longest"] + 1)
    return Built(call=lambda: told(mode, "mlp", lengths, seed))


CASE = OpenCase(
    id="A9",
    name="recompiled-lengths",
    title="Compiled code and a length that grows",
    source="pytorch/pytorch#149582",
    reported="Thirty calls with growing length: 21 ms each in eager mode; compiled, the fastest took 9 ms and the mean "
    "was 6 s.",
    axis="longest",
    baseline=EAGER,
    optimised="compiled",
    make=_make,
    points=(Point({"shortest": 3, "longest": 22}, 22),),
    requires=(torch_installed, cxx_compiler),
    fresh=True,
    expectation=Expectation("slower", "recompilation"),
)
