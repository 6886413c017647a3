"""Benches of overfusion: one kernel that loses its parallelism against several that keep it."""

from flashperf.pytest_plugin import bench_cases

test_overfusion = bench_cases("overfusion")
