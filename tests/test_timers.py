"""Timers on a scripted clock: no test sleeps or asserts a real time."""

from __future__ import annotations

import gc

import pytest

from flashperf.timers import (
    LEAST_SAMPLE_S,
    RESOLUTIONS_PER_SAMPLE,
    ScriptedClock,
    calibrate,
    resolution_s,
    time_calls,
)


def test_a_sample_is_seconds_per_call() -> None:
    clock = ScriptedClock()
    sample = time_calls(lambda: clock.advance(0.003, cpu_s=0.002), 4, clock)
    assert sample.wall_s == pytest.approx(0.003)
    assert sample.cpu_s == pytest.approx(0.002)
    assert clock.now_ns == 12_000_000


def test_no_garbage_is_collected_while_timing() -> None:
    seen: list[bool] = []
    assert gc.isenabled()
    time_calls(lambda: seen.append(gc.isenabled()), 1, ScriptedClock())
    assert seen == [False]
    assert gc.isenabled()


def test_garbage_collection_comes_back_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError):
        time_calls(lambda: 1 / 0, 1, ScriptedClock())
    assert gc.isenabled()


def test_resolution_is_the_smallest_step() -> None:
    assert resolution_s(ScriptedClock(tick_ns=50)) == pytest.approx(50e-9)
    assert resolution_s(ScriptedClock()) == 0


def test_calibration_reaches_the_least_sample() -> None:
    clock = ScriptedClock()
    calls, one_s = calibrate(lambda: clock.advance(3e-6), clock)
    assert one_s == pytest.approx(3e-6)
    assert calls == 34  # 34 x 3 us is the first to reach 100 us
    assert calls * one_s >= LEAST_SAMPLE_S


def test_calibration_respects_a_coarse_timer() -> None:
    clock = ScriptedClock(tick_ns=1000)
    calls, one_s = calibrate(lambda: clock.advance(1e-6), clock)
    assert calls * one_s >= RESOLUTIONS_PER_SAMPLE * 1e-6 * 0.999


def test_calibration_takes_a_longer_sample_if_asked() -> None:
    clock = ScriptedClock()
    assert calibrate(lambda: clock.advance(1e-3), clock, least_s=0.01)[0] == 10


def test_a_slow_call_is_one_sample() -> None:
    clock, calls = ScriptedClock(), []
    assert calibrate(lambda: (calls.append(1), clock.advance(0.5)), clock) == (1, pytest.approx(0.5))
    assert len(calls) == 1  # a call of half a second is not repeated to be sure


def test_one_interrupted_trial_does_not_pass_for_a_slow_call() -> None:
    clock, durations = ScriptedClock(), iter([5e-4])
    calls, one_s = calibrate(lambda: clock.advance(next(durations, 1e-6)), clock)
    assert calls == 100
    assert one_s == pytest.approx(1e-6)


def test_a_clock_that_stands_still_is_an_error() -> None:
    with pytest.raises(ValueError, match="stood still"):
        calibrate(lambda: None, ScriptedClock())
