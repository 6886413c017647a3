"""Benches of allocation: fresh buffers, and a badly cut pool."""

from flashperf.pytest_plugin import bench_cases

test_allocation = bench_cases("allocation")
