"""Benches of transfer: weights brought in before each use."""

from flashperf.pytest_plugin import bench_cases

test_transfer = bench_cases("transfer")
