"""Benches of overlap: computing beside the copies of the next layer's weights."""

from flashperf.pytest_plugin import bench_cases

test_overlap = bench_cases("overlap")
