"""Benches of fusion: one pass over memory against several."""

from flashperf.pytest_plugin import bench_cases

test_fusion = bench_cases("fusion")
