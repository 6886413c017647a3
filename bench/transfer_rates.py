"""What bringing weights in costs: bytes, and their effective rate, by layer, by tile and beside the products.

``python bench/transfer_rates.py [--rows M] [--k K] [--n N] [--layers L] [--repeats R]``. The effective rate is the
bytes brought in over the time that this adds to the products of resident weights; a copy that is hidden adds little,
so its rate can be far above the memory's. Copies in memory stand in for a link between host and device.
"""

from __future__ import annotations

import argparse

import numpy as np
from rounds import NOTE, in_turns, with_interval

from flashperf import registry
from flashperf.measure import bind_case
from flashperf.records import Case
from flashperf.stats import t_interval

WAYS = {
    "resident": ("transfer", "resident"),
    "per layer": ("transfer", "streamed"),
    "per tile": ("transfer", "streamed_tiles"),
    "overlapped": ("overlap", "overlapped"),
}


def effective_rate(moved_bytes: int, added_s: np.ndarray) -> str:
    """GB/s over the time that was added, one value per round; a time that may be none has no rate."""
    added = t_interval(added_s)
    if added.low <= 0:
        return f"above {moved_bytes / added.high / 1e9:.1f}" if added.high > 0 else "nothing added"
    return "{:.1f} [{:.1f}, {:.1f}]".format(
        *(moved_bytes / each / 1e9 for each in (added.value, added.high, added.low))
    )


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    for name, default in (("rows", 64), ("k", 512), ("n", 1024), ("layers", 8), ("repeats", 20)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    if options.repeats < 2 or min(options.rows, options.k, options.n, options.layers) < 1:
        parser.error("sizes must be at least 1, and --repeats at least 2")
    sizes = {"layers": options.layers, "m": options.rows, "k": options.k, "n": options.n}
    calls, costs = [], []
    for name, variant in WAYS.values():
        mechanism, case = registry.mechanism(name), Case.of(name, variant, "cpu", "f32", sizes)
        calls.append(bind_case(mechanism, case).call)
        costs.append(mechanism.cost(case))
    seconds = in_turns(calls, options.repeats)
    print(f"{options.layers} products [{options.rows}, {options.k}] x [{options.k}, {options.n}], f32")
    print(f"{'':12}{'MB in':>8}{'copies':>8}{'ms':>27}{'ms added':>27}  GB/s effective")
    for number, (way, cost) in enumerate(zip(WAYS, costs, strict=True)):
        line = f"{way:12}{cost.bytes_transferred / 1e6:>8.1f}{cost.launches - costs[0].launches:>8}"
        line += f"{with_interval(seconds[:, number], 1e3):>27}"
        if cost.bytes_transferred:
            added = seconds[:, number] - seconds[:, 0]
            line += f"{with_interval(added, 1e3):>27}  {effective_rate(cost.bytes_transferred, added)}"
        print(line)
    print(NOTE)


if __name__ == "__main__":
    main()
