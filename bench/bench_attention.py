"""Benches of attention: online softmax against a materialised score matrix, and windows."""

from flashperf.pytest_plugin import bench_cases

test_attention = bench_cases("attention")
