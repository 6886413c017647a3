"""Our kernels beside a baseline: what is checked first, how a share is made, and what a broken pair leaves."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from test_gpu_clock import FakeDevice

from flashperf.backends import available
from flashperf.gpu.clock import DeviceClock
from flashperf.gpu_run import comparisons
from flashperf.gpu_run.baselines import Baseline, Side
from flashperf.gpu_run.comparisons import PAIRS, Pair, Row, compare
from flashperf.records import Case
from flashperf.timers import Sample


def test_pairs_name_cases_that_exist_and_baselines_that_are_known() -> None:
    aims = {(Case.parse(p.case).backend, p.baseline, p.aim) for p in PAIRS if p.aim}
    assert aims == {
        ("cuda", "matmul_bf16", 0.4),
        ("cuda", "matmul_f32", 0.65),
        ("cuda", "sdpa", 0.3),
        ("cuda", "copy", 0.9),
        ("triton", "matmul_bf16", 0.65),
        ("triton", "sdpa", 0.5),
        ("triton", "copy", 0.85),
    }
    for pair in PAIRS:
        assert pair.baseline in comparisons.BASELINES
        for text in (pair.case, pair.tiny):
            case = Case.parse(text)
            found = comparisons.registry.mechanism(case.mechanism)
            assert case.backend in found.variants[case.variant]
            assert case.dtype in found.dtypes


def test_a_pair_that_breaks_is_a_row_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("an illegal memory access was encountered\nmore")

    monkeypatch.setattr(comparisons, "load_problem", broken)
    row = compare(PAIRS[0], tiny=True, budget_s=1.0)
    assert row.problem == "RuntimeError: an illegal memory access was encountered"
    assert row.share is None


def test_a_baseline_that_computes_something_else_is_found() -> None:
    reference = np.ones((3, 3))
    comparisons._check_baseline(reference * 1.001, reference)
    with pytest.raises(comparisons.UserError, match="the baseline is off by"):
        comparisons._check_baseline(reference * 1.5, reference)


class Ticking(DeviceClock):
    """Every timed call takes 10 us of a scripted device, beside what it does by itself."""

    def __init__(self) -> None:
        self.fake = FakeDevice(call_s=10e-6)
        super().__init__(self.fake)

    def time_calls(self, call: Callable[[], object], calls: int) -> Sample:
        def both() -> None:
            call()
            self.fake.call()

        return super().time_calls(both, calls)


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch) -> Ticking:
    """A clock for cases of the CPU, and a baseline that takes 20 us for 4000 bytes."""
    clock = Ticking()
    monkeypatch.setattr(comparisons, "clock_for", lambda backend: clock)
    monkeypatch.setattr(comparisons, "count_launches", lambda call: 1)
    side = Side(clock.fake.call, 4000.0)
    monkeypatch.setitem(
        comparisons.BASELINES, "copy", Baseline("a copy", lambda problem: side, per_byte=True)
    )
    return clock


TIMED = Pair("launch/whole/cpu/f32/n=1000-chunks=64", "copy", 0.9, "launch/whole/cpu/f32/n=1000-chunks=64")


def test_a_share_is_the_ratio_of_rates_and_every_clock_is_in_the_row(ticking: Ticking) -> None:
    row = compare(TIMED, tiny=False, budget_s=0.05)
    assert row.problem == ""
    assert row.ours_s == pytest.approx(10e-6)
    assert row.baseline_s == pytest.approx(20e-6)
    assert row.share == pytest.approx((12000 / 10e-6) / (4000 / 20e-6))  # 3 arrays of 1000 floats
    assert row.rate == "1.20 GB/s"
    assert row.blocks >= 3
    assert row.launches == 1
    assert set(row.clocks) >= {"event_s", "host_s", "graph_s", "cold_s"}


def test_a_case_that_launches_more_than_it_declares_is_not_timed(
    ticking: Ticking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparisons, "count_launches", lambda call: 3)
    assert compare(TIMED, tiny=False, budget_s=0.05).problem == "3 kernels ran, declared were 1"


@pytest.mark.skipif(not available("cuda"), reason="there is a GPU: it would be timed")
def test_nothing_is_timed_without_a_gpu() -> None:
    pair = Pair("launch/whole/cuda/f32/n=1-chunks=4", "copy", 0.9, "launch/whole/cuda/f32/n=1-chunks=4")
    assert (
        "no device to time" in compare_full(pair).problem or "no NVIDIA driver" in compare_full(pair).problem
    )


def compare_full(pair: Pair) -> Row:
    return compare(pair, tiny=False, budget_s=1.0)
