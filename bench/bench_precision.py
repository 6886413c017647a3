"""Benches of precision: half types and casts against f32."""

from flashperf.pytest_plugin import bench_cases

test_precision = bench_cases("precision")
