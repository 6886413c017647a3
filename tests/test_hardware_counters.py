"""The processor's counters where there are any, the reason where there are none, and hit rates simulated instead."""

from __future__ import annotations

import errno
import math
import mmap
import struct

import pytest
from test_bench_scripts import script

from flashperf import hardware_counters
from flashperf.hardware_counters import CACHE_EVENTS, Event, HardwareCounters
from flashperf.records import Case
from flashperf.roofs.levels import CacheLevel

PAGE_FAULTS = Event(1, 2)  # PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS: there without any hardware


def touch(pages: int) -> None:
    """Write to that many new pages."""
    with mmap.mmap(-1, pages * mmap.PAGESIZE) as fresh:
        fresh.madvise(mmap.MADV_NOHUGEPAGE)
        for page in range(pages):
            fresh[page * mmap.PAGESIZE] = 1


def test_events_of_the_calls_alone_are_counted() -> None:
    counters = HardwareCounters({"faults": PAGE_FAULTS})
    if counters.reason:
        pytest.skip(counters.reason)
    touch(500)
    assert 300 <= counters.count(lambda: touch(100), 3)["faults"] < 400
    assert counters.count(lambda: None, 1)["faults"] < 10
    counters.close()


def test_a_counter_that_ran_a_part_of_the_time_is_scaled() -> None:
    assert hardware_counters._scaled(struct.pack("=QQQ", 50, 1000, 250)) == 200
    assert math.isnan(hardware_counters._scaled(struct.pack("=QQQ", 0, 1000, 0)))


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.EACCES, "no permission for hardware counters (/proc/sys/kernel/perf_event_paranoid decides)"),
        (errno.ENOENT, "this machine shows no hardware counters of its caches"),
        (errno.ENOSYS, "hardware counters can't be read: no such call"),
    ],
)
def test_where_there_are_none_the_reason_says_so(
    number: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(event: Event) -> int:
        raise OSError(number, "no such call")

    monkeypatch.setattr(hardware_counters, "_open", refuse)
    counters = HardwareCounters({"faults": PAGE_FAULTS})
    assert counters.reason == said
    with pytest.raises(RuntimeError, match="counters"):
        counters.count(lambda: None, 1)


def test_an_order_decides_what_is_found_in_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """16 KiB an array: three parts of 1 KiB fit the inner cache of 4 KiB, whole arrays only the outer one of 64."""
    module = script("cache_hits", monkeypatch)
    levels = (CacheLevel("inner", 4 << 10, 1), CacheLevel("outer", 64 << 10, 1))
    cases = {
        name: Case.of("cache", name, "cpu", "f32", {"n": 4096, "chunk": 256}) for name in ("chunked", "whole")
    }
    assert module.simulated(cases["chunked"], levels) == {"inner": (48, 32), "outer": (16, 16)}
    assert module.simulated(cases["whole"], levels) == {"inner": (48, 0), "outer": (48, 48)}
    assert module.said(module.simulated(cases["chunked"], levels)).split() == ["66.7", "%", "100.0", "%"]


def test_counted_rates_are_those_of_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    module = script("cache_hits", monkeypatch)

    class Counters:
        def count(self, call: object, times: int) -> dict[str, float]:
            return {
                f"{level} {what}": 100.0 - 75 * (what == "missed")
                for level in CACHE_EVENTS
                for what in ("read", "missed")
            }

    case = Case.of("cache", "whole", "cpu", "f32", {"n": 64, "chunk": 16})
    assert module.counted(case, Counters(), 3) == dict.fromkeys(CACHE_EVENTS, (100.0, 75.0))
