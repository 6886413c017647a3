"""Allocation beside its time: page faults of each way, and what a first-fit pool loses to holes.

``python bench/fragmentation.py``. Faults are counted over one call after a first one; fragmentation is computed, not
measured: blocks of varied sizes come and go at random in a pool a tenth larger than their mean.
"""

from __future__ import annotations

import resource

from flashperf import memory, registry
from flashperf.measure import bind_case
from flashperf.mechanisms._pool import churn
from flashperf.records import Case

KIB = 1024
SPREADS = ((64, 64), (48, 96), (16, 256), (4, 1024))  # KiB


def main() -> None:
    """Print both tables."""
    mechanism = registry.mechanism("allocation")
    print(f"{'elements':>10}{'':>4}{'way':12}{'page faults':>14}{'allocations':>14}{'peak MB':>10}")
    for sizes in mechanism.bench_sizes:
        for variant in mechanism.variants:
            case = Case.of("allocation", variant, "cpu", "f32", sizes)
            bound = bind_case(mechanism, case)
            bound.call()
            memory.reset_peak()
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            bound.call()
            faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
            made = mechanism.cost(case).allocations
            print(
                f"{sizes['n']:>10}{'':>4}{variant:12}{faults:>14}{made:>14}{memory.peak_bytes() / 1e6:>10.1f}"
            )
    print()
    print("first fit, 64 blocks at a time, 4000 requests, mean of 5 seeds (computed)")
    print(f"{'sizes':>16}{'free but apart':>18}{'did not fit':>14}{'then in use':>14}")
    for low, high in SPREADS:
        found = [churn(low * KIB, high * KIB, 64, 4000, seed) for seed in range(5)]
        apart, failed, used = (
            sum(getattr(f, name) for f in found) / 5 for name in ("fragmentation", "failed", "used")
        )
        print(f"{f'{low} to {high} KiB':>16}{apart:>18.0%}{failed / 4000:>14.1%}{used:>14.0%}")


if __name__ == "__main__":
    main()
