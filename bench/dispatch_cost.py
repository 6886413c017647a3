"""What dispatching one operator costs: t = a + b ops, fitted to chains of operators.

``python bench/dispatch_cost.py [--elements N] [--repeats R]``. ``planned`` is a native replay, ``issued`` the same
bound calls from Python, ``eager`` checks and binds each call anew, ``torch`` is ``torch.add(out=)`` where torch is
installed. b minus that of planned is the cost of a dispatch. One thread; R rounds, in each of which every chain takes
its turn; a line is fitted to each round, and intervals are over rounds.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from rounds import NOTE, in_turns, with_interval

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


def fits(runs: dict[str, list[Callable[[], Any]]], rounds: int) -> dict[str, list[LineFit]]:
    """A line per round for every variant; the chains of all variants take turns."""
    seconds = in_turns([run for chain in runs.values() for run in chain], rounds)
    seconds = seconds.reshape(rounds, len(runs), len(LENGTHS))
    return {name: [fit_line(LENGTHS, row) for row in seconds[:, number]] for number, name in enumerate(runs)}


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--elements", type=int, default=192, help="of each operator")
    parser.add_argument("--repeats", type=int, default=20)
    options = parser.parse_args()
    if options.repeats < 2:
        parser.error("--repeats must be at least 2: an interval comes from what differs between rounds")
    runs = {variant: chains(variant, options.elements) for variant in ("planned", "issued", "eager")}
    runs |= {"torch": chain} if (chain := torch_chains(options.elements)) else {}
    found = fits(runs, options.repeats)
    per_op = {variant: np.array([fit.b_s for fit in lines]) for variant, lines in found.items()}
    print(f"operators on {options.elements} elements, chains of {', '.join(map(str, LENGTHS))}; µs")
    print(f"{'':10}{'a':>30}{'b per operator':>30}{'residual':>12}{'dispatch':>30}")
    for variant, lines in found.items():
        values = (np.array([fit.a_s for fit in lines]), per_op[variant])
        row = "".join(f"{with_interval(value, 1e6):>30}" for value in values)
        residual = f"{1e6 * np.mean([fit.residual_s for fit in lines]):.3f}"
        dispatch = with_interval(per_op[variant] - per_op["planned"], 1e6) if variant != "planned" else "-"
        print(f"{variant:10}{row}{residual:>12}{dispatch:>30}")
    print(NOTE)
    if "torch" not in found:
        print("torch: not installed")


if __name__ == "__main__":
    main()
