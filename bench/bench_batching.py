"""Benches of batching: sequences of unequal length bucketed, packed, padded, one by one."""

from flashperf.pytest_plugin import bench_cases

test_batching = bench_cases("batching")
