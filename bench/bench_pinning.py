"""Benches of pinning: ragged rows by a queue or by a share beforehand, on threads that may move or may not."""

from flashperf.pytest_plugin import bench_cases

test_pinning = bench_cases("pinning")
