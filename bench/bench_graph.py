"""Benches of graph: dispatching each operator, planned or eager."""

from flashperf.pytest_plugin import bench_cases

test_graph = bench_cases("graph")
