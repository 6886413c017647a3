"""Benches of quantization: INT8 with scales found on every call against f32."""

from flashperf.pytest_plugin import bench_cases

test_quantization = bench_cases("quantization")
