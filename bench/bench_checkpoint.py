"""Benches of checkpoint: state saved every few steps, waiting for it or not."""

from flashperf.pytest_plugin import bench_cases

test_checkpoint = bench_cases("checkpoint")
