"""Benches of cache: a producer and a consumer chunk by chunk, or one after the other."""

from flashperf.pytest_plugin import bench_cases

test_cache = bench_cases("cache")
