"""Resident memory: a peak is forgotten when asked, and a new one is seen."""

import numpy as np
import pytest

from flashperf import memory


def test_the_peak_is_counted_from_the_last_reset() -> None:
    held = np.ones(64 << 20, np.uint8)
    before = memory.reset_peak()
    if memory.peak_bytes() > before + (16 << 20):
        pytest.skip("this system does not let a process reset its peak (clear_refs)")
    more = np.ones(96 << 20, np.uint8)
    del more
    grown = memory.peak_bytes() - before
    assert 90 << 20 < grown < 120 << 20
    assert held[0] == 1
