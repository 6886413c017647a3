"""A developer's own Triton pair by the lines of docs/triton.md, and our clocks beside do_bench's."""

from __future__ import annotations

import functools
import re
import sys
from pathlib import Path

import pytest

import flashperf
from flashperf.backends import available
from flashperf.errors import UserError
from flashperf.gpu.verdicts import Times

pytest.importorskip("torch", reason="torch is not installed (pip install 'flashperf[triton]')")
pytest.importorskip("triton", reason="triton is not installed (pip install 'flashperf[triton]')")

from flashperf.kernels._clocks import beside_do_bench, why_they_differ

DOCS = Path(__file__).resolve().parent.parent / "docs"
NO_GPU = bool(available("triton"))


@pytest.mark.skipif(not NO_GPU, reason="the lines of the docs are run in the interpreter")
def test_the_lines_of_the_docs_judge_a_pair(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one process and briefly: the numbers mean nothing in an interpreter, and the text must say so."""
    (block,) = re.findall(r"```python\n(.*?)```", (DOCS / "triton.md").read_text(), re.DOTALL)
    quick = functools.partial(flashperf.compare.compare, processes=1, budget_s=0.1)
    monkeypatch.setattr(flashperf, "compare", quick)
    monkeypatch.syspath_prepend(str(DOCS / "examples"))
    try:
        exec(compile(block, "triton.md", "exec"), {"__name__": "docs"})
    finally:
        sys.modules.pop("triton_pair", None)
    text = " ".join(capsys.readouterr().out.split())
    assert "fused" in text
    assert "split" in text
    assert "error" in text
    assert text.startswith(
        "Triton interprets its kernels here: that checks them, and says nothing about their times"
    )


def times(event_s: float, cold_s: float | None, enqueue_s: float = 1e-6) -> Times:
    return Times(event_s=event_s, host_s=event_s, enqueue_s=enqueue_s, cold_s=cold_s, flush_s=50e-6)


def test_clocks_that_agree_need_no_reason() -> None:
    assert why_they_differ(times(1e-3, 1e-3), 1.001e-3) == ()


def test_the_flush_and_the_launch_are_told_apart() -> None:
    (flush,) = why_they_differ(times(100e-6, 150e-6), 151e-6)
    assert "empties the L2" in flush
    assert "150.0 us after a flush, 100.0 us warm" in flush
    (gap,) = why_they_differ(times(10e-6, 10e-6, enqueue_s=30e-6), 35e-6)
    assert "25.0 us of waiting" in gap
    assert "launching takes longer" in gap
    assert len(why_they_differ(times(100e-6, 150e-6), 200e-6)) == 2


def test_a_difference_without_a_cause_is_called_that() -> None:
    (reason,) = why_they_differ(times(100e-6, 100e-6), 50e-6)
    assert "nothing here explains" in reason


@pytest.mark.skipif(not NO_GPU, reason="there is a GPU")
def test_without_a_gpu_nothing_is_timed() -> None:
    with pytest.raises(UserError, match="nothing to time on: no NVIDIA driver"):
        beside_do_bench(lambda: None)


def test_kernels_on_a_gpu_are_not_timed_by_the_clock_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    from flashperf.gpu import clock

    monkeypatch.setattr(clock, "available", lambda name: "CuPy is not installed" if name == "cuda" else "")
    with pytest.raises(UserError, match="triton kernels are timed by CuPy's events: CuPy is not installed"):
        clock.clock_for("triton")
    assert clock.clock_for("cpu") is clock.SYSTEM_CLOCK
