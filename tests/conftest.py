"""Before anything imports Triton: without an NVIDIA driver its kernels are interpreted (see kernels/__init__.py)."""

import flashperf.kernels  # noqa: F401
