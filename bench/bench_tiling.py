"""Benches of tiling: tile shapes of a matrix product."""

from flashperf.pytest_plugin import bench_cases

test_tiling = bench_cases("tiling")
