"""What is made of the roofs of a GPU: placement, tables beside data sheets, cases timed by the device's clock."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sample_parts
from gpu_roof_samples import SAMPLE_S, FakeDevice, gpu_samples

from flashperf import cli, registry
from flashperf.commands.roofs import data_sheet
from flashperf.gpu.clock import DeviceClock
from flashperf.gpus import GPUS, of_device
from flashperf.roofs import save_roofs
from flashperf.roofs.cases import CaseTimer


def test_a_kernel_on_a_gpu_is_placed_under_its_roofs() -> None:
    found = gpu_samples()
    assert found.units("bf16")[0].how == "torch"  # the fastest that anything reaches is the roof
    assert found.roof("f32", 1 << 20, 1 << 20).name == "L2"
    assert found.roof("f32", 1 << 20, 1 << 20, from_memory_bytes=1 << 20).name == "HBM"
    roof = found.roof("f32", 1 << 30, 1 << 30)
    assert (roof.name, roof.launch_s) == ("HBM", pytest.approx(2e-6, rel=1e-3))


def test_they_are_printed_with_the_data_sheet_below(tmp_path: Path, capsys: Any) -> None:
    path = save_roofs(gpu_samples(), tmp_path / "roofs.jsonl")
    assert cli.main(["roofs", "--from", str(path)]) == 0
    said = capsys.readouterr().out
    assert re.search(r"memory +whole GPU", said)
    assert re.search(r"HBM +load +4.00 TB/s ±1.5 %\n +copy +3.90 TB/s ±1.5 %\n +data sheet +4.80 TB/s", said)
    assert re.search(r"torch +700 TFLOP/s ±1.5 %\n +data sheet +989 TFLOP/s", said)
    assert re.search(r"i8 +mma.sync +1000 TOP/s ±1.5 %\n +data sheet +1979 TOP/s", said)
    assert "data sheet" not in said.split("L2")[1].split("HBM")[0]
    assert "Data sheet: H200 SXM 141 GB; NVIDIA H200" in " ".join(said.split())
    assert all(len(line) <= 80 for line in said.splitlines())


def test_no_data_sheet_is_guessed() -> None:
    assert of_device("NVIDIA H100 PCIe") is None
    assert of_device("NVIDIA A100-SXM4-40GB") is None
    assert of_device("NVIDIA L4") is GPUS["l4"]
    assert data_sheet(replace(gpu_samples(), environment=sample_parts.QUIET)) == {}


def test_cases_of_a_gpu_are_timed_by_its_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    device, flushed = FakeDevice(), list[str]()
    device.flush = lambda: flushed.append("L2")  # type: ignore[method-assign]
    monkeypatch.setattr("flashperf.roofs.cases.clock_for", lambda backend: DeviceClock(device))
    case = registry.cases(registry.mechanism("launch"), "test", ["cpu"])[0]
    times = CaseTimer().time_case(case.id, check=True, cold=True)
    assert times["cold"] == pytest.approx(SAMPLE_S)
    assert times["warm"] == pytest.approx(SAMPLE_S)
    assert len(flushed) == 3
