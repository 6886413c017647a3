"""What to drop and what to conclude where a GPU's clocks disagree: rules on numbers with known answers."""

from __future__ import annotations

import dataclasses

import pytest

from flashperf.gpu.verdicts import Times, drop_throttled, explain, median

AGREED = Times(event_s=100e-6, host_s=103e-6, enqueue_s=20e-6, graph_s=99e-6, cold_s=130e-6, flush_s=50e-6)


def with_times(**changed: float | None) -> list[str]:
    return explain(dataclasses.replace(AGREED, **changed))


def test_samples_at_a_reduced_clock_are_dropped_and_counted() -> None:
    kept = drop_throttled([1, 2, 3, 4, 5, 6], [1980, 1980, 1500, 1975, 1200, None])
    assert kept.samples_s == (1, 2, 4, 6)
    assert (kept.dropped, kept.throttled_kept) == (2, 0)
    assert kept.note == "2 throttled samples dropped, 0 kept"


def test_at_most_half_is_dropped_the_slowest_clocks_first() -> None:
    kept = drop_throttled([1, 2, 3, 4], [1000, 900, 1980, 1100])
    assert kept.samples_s == (3, 4)
    assert (kept.dropped, kept.throttled_kept) == (2, 1)


def test_a_long_sample_at_full_clock_stays() -> None:
    kept = drop_throttled([1, 100, 1], [1980, 1980, 1980])
    assert kept.samples_s == (1, 100, 1)
    assert kept.note == ""


def test_nothing_is_dropped_where_no_clock_is_known() -> None:
    assert drop_throttled([1, 2], [None, None]).samples_s == (1, 2)
    assert drop_throttled([], []).samples_s == ()
    with pytest.raises(ValueError, match="2 samples, but 1 clocks"):
        drop_throttled([1, 2], [1980])


def test_clocks_that_agree_need_no_words() -> None:
    assert explain(AGREED) == []
    assert with_times(graph_s=None, cold_s=None, flush_s=None) == []


def test_work_on_another_stream_is_found() -> None:
    (said,) = with_times(event_s=3e-6, host_s=120e-6, graph_s=None, cold_s=None)
    assert said.startswith(
        "wrong stream: the device works 100.0 us on after the last call, the events saw 3.0"
    )


def test_a_host_that_is_slower_than_the_device_is_launch_bound() -> None:
    (said,) = with_times(event_s=5e-6, host_s=21e-6, enqueue_s=20e-6, graph_s=5e-6, cold_s=None)
    assert said == "launch-bound: the host needs 20.0 us to enqueue what the device does in 5.0 us"


def test_gaps_and_slow_graphs_are_told_apart() -> None:
    assert with_times(graph_s=60e-6)[0].startswith("gaps between launches: 100.0 us one by one, 60.0 us in")
    assert with_times(graph_s=160e-6)[0].startswith("the graph is slower, 160.0 us for 100.0 us")


def test_a_flush_inside_the_timed_region_is_found() -> None:
    assert with_times(cold_s=148e-6)[0].startswith("flush leak: emptying the L2 adds 48.0 us")
    assert with_times(cold_s=70e-6)[0].startswith("the flush has no effect")


def test_differences_below_an_event_resolution_are_none() -> None:
    tiny = Times(event_s=1.0e-6, host_s=1.4e-6, enqueue_s=1.0e-6, graph_s=0.7e-6)
    assert explain(tiny) == []


def test_median_of_nothing_is_no_number() -> None:
    assert median([3, 1, 2]) == 2
    assert median([]) != median([])
