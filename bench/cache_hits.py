"""How often a producer and its consumer find their data in each cache, in the order of the ``cache`` mechanism.

``python bench/cache_hits.py [--calls N]``. Rates are of loads: from the processor's own counters where it shows them,
else simulated. The simulation takes lines of one KiB, least recently used out, every level keeping what passes through
it, and no prefetching: it says where the order puts the data, not what a real cache of that size does.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping

from flashperf import registry
from flashperf.hardware_counters import CACHE_EVENTS, HardwareCounters
from flashperf.measure import bind_case
from flashperf.mechanisms.cache import parts
from flashperf.records import Case
from flashperf.roofs.levels import CacheLevel, assumed_levels, cache_levels
from flashperf.traffic.caches import LINE_BYTES, SectorCache

BLOCK_BYTES = 1 << 10
WHOLE = 15  # all sectors of a line

#: Level -> loads that it was asked for, and hits among them.
Hits = dict[str, tuple[float, float]]


def accesses(case: Case) -> Iterator[tuple[int, bool]]:
    """(block, whether it is loaded) in the order of one call: x and t, then t, x and y, part by part."""
    blocks = -(-case["n"] * 4 // BLOCK_BYTES)
    x, t, y = 0, blocks, 2 * blocks
    for part in parts(case.variant, case["n"], case["chunk"]):
        inside = range(part.start * 4 // BLOCK_BYTES, -(-part.stop * 4 // BLOCK_BYTES))
        for block in inside:
            yield x + block, True
            yield t + block, False
        for block in inside:
            yield t + block, True
            yield x + block, True
            yield y + block, False


def simulated(case: Case, levels: tuple[CacheLevel, ...]) -> Hits:
    """Loads and hits of one call after another one like it, in caches of these sizes."""
    caches = [SectorCache(level.size_bytes // BLOCK_BYTES * LINE_BYTES) for level in levels]
    asked, found = [0] * len(levels), [0] * len(levels)
    for last in (False, True):
        for block, loaded in accesses(case):
            for n, cache in enumerate(caches):
                missing = cache.read(block, WHOLE)
                asked[n] += last and loaded
                found[n] += last and loaded and not missing
                if not missing:
                    break
    return {level.name: (asked[n], found[n]) for n, level in enumerate(levels)}


def counted(case: Case, counters: HardwareCounters, calls: int) -> Hits:
    """The same from the processor's counters, over several calls after one that warms the caches."""
    call = bind_case(registry.mechanism("cache"), case).call
    call()
    events = counters.count(call, calls)
    return {
        level: (events[f"{level} read"], events[f"{level} read"] - events[f"{level} missed"])
        for level in CACHE_EVENTS
    }


def said(hits: Mapping[str, tuple[float, float]]) -> str:
    """Each level's rate; a level that is not asked has none."""
    rates = (f"{100 * found / asked:.1f} %" if asked else "-" for asked, found in hits.values())
    return "".join(f"{rate:>12}" for rate in rates)


def main() -> None:
    """Count or simulate every bench case, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--calls", type=int, default=20, help="calls that are counted")
    options = parser.parse_args()
    if options.calls < 1:
        parser.error("--calls must be at least 1")
    named = {
        f"{level} {what}": event
        for level, (reads, misses) in CACHE_EVENTS.items()
        for what, event in (("read", reads), ("missed", misses))
    }
    counters, levels = HardwareCounters(named), cache_levels() or assumed_levels()
    names = list(CACHE_EVENTS) if not counters.reason else [level.name for level in levels]
    print(f"{'hits of loads':38}" + "".join(f"{name:>12}" for name in names))
    for case in registry.cases(registry.mechanism("cache"), "bench", ["cpu"]):
        hits = simulated(case, levels) if counters.reason else counted(case, counters, options.calls)
        print(f"{case.variant:9}n={case['n']:<10} chunk={case['chunk']:<9}{said(hits)}")
    if counters.reason:
        sizes = ", ".join(f"{level.name} {level.size_bytes >> 10} KiB" for level in levels)
        print(f"simulated, not measured: {counters.reason}")
        print(f"least recently used out, every level keeps what passes, no prefetching; {sizes}")
    else:
        print(f"counted by the processor in {options.calls} calls, prefetched lines among the hits")
    counters.close()


if __name__ == "__main__":
    main()
