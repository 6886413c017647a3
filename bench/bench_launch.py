"""Benches of launch: one native call against many small ones."""

from flashperf.pytest_plugin import bench_cases

test_launch = bench_cases("launch")
