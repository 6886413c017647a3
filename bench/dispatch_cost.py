"""What dispatching one operator costs: t = a + b ops, fitted to chains of operators.

``python bench/dispatch_cost.py [--elements N] [--repeats R]``. ``planned`` is a native replay, ``issued`` the same
bound calls from Python, ``eager`` checks and binds each call anew, ``torch`` is ``torch.add(out=)`` where torch is
installed. b minus that of planned is the cost of a dispatch. One thread; the fastest of R samples of each length.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

from flashperf import registry
from flashperf.measure import bind_case
from flashperf.mechanisms.graph import LineFit, fit_line
from flashperf.records import Case

LENGTHS = (8, 16, 32, 64, 128)


def chains(variant: str, elements: int) -> list[Callable[[], Any]]:
    """Checked chains of every length."""
    mechanism = registry.mechanism("graph")
    cases = [Case.of("graph", variant, "cpu", "f32", {"ops": ops, "n": elements}) for ops in LENGTHS]
    return [bind_case(mechanism, case).call for case in cases]


def torch_chains(elements: int) -> list[Callable[[], Any]]:
    """The same additions by torch; none where it is not installed."""
    try:
        import torch
    except ImportError:
        return []
    torch.set_num_threads(1)
    x, y, z = torch.randn(elements), torch.randn(elements), torch.empty(elements)

    def chain(ops: int) -> Callable[[], None]:
        def run() -> None:
            with torch.inference_mode():
                for _ in range(ops):
                    torch.add(x, y, alpha=0.5, out=z)

        return run

    return [chain(ops) for ops in LENGTHS]


def fastest_s(run: Callable[[], Any], repeats: int) -> float:
    """Seconds of one call: the fastest sample, of as many calls as take half a millisecond."""
    begin = time.perf_counter()
    run()
    calls = max(1, round(500e-6 / max(time.perf_counter() - begin, 1e-7)))
    samples = []
    for _ in range(repeats):
        begin = time.perf_counter()
        for _ in range(calls):
            run()
        samples.append((time.perf_counter() - begin) / calls)
    return min(samples)


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--elements", type=int, default=192, help="of each operator")
    parser.add_argument("--repeats", type=int, default=20)
    options = parser.parse_args()
    found: dict[str, LineFit] = {}
    for variant in ("planned", "issued", "eager", "torch"):
        runs = torch_chains(options.elements) if variant == "torch" else chains(variant, options.elements)
        if runs:
            times = [fastest_s(run, options.repeats) for run in runs]
            found[variant] = fit_line(LENGTHS, times)
    print(f"operators on {options.elements} elements, chains of {', '.join(map(str, LENGTHS))}")
    print(f"{'':10}{'a':>12}{'b per op':>12}{'residual':>12}{'dispatch':>12}")
    for variant, fit in found.items():
        dispatch = fit.b_s - found["planned"].b_s
        values = (fit.a_s, fit.b_s, fit.residual_s, dispatch)
        print(f"{variant:10}" + "".join(f"{1e6 * value:>9.3f} µs" for value in values))
    if "torch" not in found:
        print("torch: not installed")


if __name__ == "__main__":
    main()
