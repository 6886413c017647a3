"""The end-to-end bench: Standard against Flash, and in the terminal summary what made the difference."""

from flashperf.pytest_plugin import bench_end_to_end

test_paradox = bench_end_to_end()
