"""Triton kernels: a module per mechanism holds its kernels and says what is launched; ``_launch`` runs it.

Importing one of these modules imports torch and Triton; this package itself imports neither. Triton decides once,
while it is imported, whether its kernels are compiled or interpreted, so that is decided here: without an NVIDIA
driver they are interpreted. ``TRITON_INTERPRET`` in the environment (0 or 1) overrides it.
"""

from __future__ import annotations

import os

from flashperf.backends import driver_missing

if driver_missing():
    os.environ.setdefault("TRITON_INTERPRET", "1")
