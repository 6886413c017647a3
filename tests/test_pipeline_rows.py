"""Metric rows of the pipeline from scripted records, and the counters that they come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flashperf.attribution import SwitchLevels
from flashperf.disturbance import host_counters
from flashperf.explain.pipeline_rows import pipeline_rows
from flashperf.explain.record import Record
from flashperf.records import Metric

BASE = {"seconds": 1.0, "cpu_s": 1.0}


def record(runs: dict[int, dict[str, float]], **lines: list[dict[str, Any]]) -> Record:
    """Two workers, a quad each, every run of a mask alike."""
    found = Record({"switches": [{"name": "a", "standard": "x", "flash": "y", "active": True}]})
    assert found.switches == [SwitchLevels("a", "x", "y", True)]
    for worker in range(2):
        masks = [0, 1, 0, 1]
        scale = 1 + 0.1 * worker
        values = [{name: value * scale for name, value in runs[mask].items()} for mask in masks]
        found.groups.append({"worker": worker, "group": "quad", "masks": masks, "runs": values})
    for name, value in lines.items():
        setattr(found, name, value)
    return found


def rows(found: Record) -> dict[str, Metric]:
    return {metric.name: metric for metric in pipeline_rows(found)}


def test_older_records_have_no_such_rows() -> None:
    assert rows(record({0: BASE, 1: BASE})) == {}


def test_latencies_faults_and_waits_are_means_over_workers() -> None:
    standard = {**BASE, "page_faults": 0.0, "latency_p50_s": 0.010, "runqueue_s": 0.0}
    flash = {
        **BASE,
        "page_faults": 100.0,
        "latency_p50_s": 0.030,
        "runqueue_s": 0.0,
        "checkpoint_wait_s": 0.002,
    }
    found = rows(record({0: standard, 1: flash}))
    latency = found["request latency p50"]
    assert latency.standard is not None
    assert latency.standard.value == pytest.approx(10.5)
    assert latency.ratio is not None
    assert latency.ratio.value == pytest.approx(3)
    faults = found["page faults"]
    assert faults.ratio is None, "nothing is a multiple of zero"
    assert faults.flash is not None
    assert faults.flash.value == pytest.approx(105)
    wait = found["waiting for saved state"]
    assert wait.standard is not None
    assert wait.standard.value == 0
    assert "soft interrupts" in found, "what the system doesn't tell is a row with its reason"
    assert "/proc/stat" in found["soft interrupts"].note


def test_padding_and_streaming_come_from_probes_and_profiles() -> None:
    probes = [
        {"mask": mask, "real_rows": 80.0, "computed_rows": 80.0 * (1 + mask), "allocations": 5.0 * mask}
        for mask in (0, 1)
    ]
    profiles = [{"mask": 1, "staged_bytes": 2e9, "staged_s": 0.5}, {"mask": 0, "seconds": 1.0}]
    run = {**BASE, "page_faults": 0.0}
    found = rows(record({0: run, 1: run}, probes=probes, profiles=profiles))
    assert [found["real tokens"].standard.value, found["real tokens"].flash.value] == [100, 50]  # type: ignore[union-attr]
    assert found["allocations"].flash.value == 5  # type: ignore[union-attr]
    assert found["weights streamed"].flash.value == pytest.approx(2000)  # type: ignore[union-attr]
    assert found["weights streamed"].standard is None
    assert found["streaming rate"].flash.value == pytest.approx(4)  # type: ignore[union-attr]


def test_counters_are_read_and_missing_ones_left_out(tmp_path: Path) -> None:
    assert set(host_counters(tmp_path)) == {"page_faults"}
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/schedstat").write_text("5000000000 2500000000 7\n")
    (tmp_path / "proc/stat").write_text("cpu  1 2 3 4 5 6 300 8 9 10\ncpu0 ...\n")
    found = host_counters(tmp_path)
    assert found["runqueue_s"] == 2.5
    assert found["softirq_s"] > 0
    (tmp_path / "proc/self/schedstat").write_text("no numbers\n")
    assert "runqueue_s" not in host_counters(tmp_path)
