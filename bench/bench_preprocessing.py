"""Benches of preprocessing: masks rebuilt on the host on every step against cached ones."""

from flashperf.pytest_plugin import bench_cases

test_preprocessing = bench_cases("preprocessing")
