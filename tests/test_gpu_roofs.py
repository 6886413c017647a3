"""The roofs of a GPU: sizes, what a worker measures on a scripted device with emulated kernels, what is made of it."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gpu_roof_samples import H200, L4, SAMPLE_S, TINY, FakeDevice

from flashperf.backends import available
from flashperf.cuda import launcher, roofs
from flashperf.cuda.roof_subject import GpuRoofSubject
from flashperf.errors import UserError
from flashperf.gpu.clock import EVENTS, HELD
from flashperf.gpu.properties import GpuProperties, read_properties
from flashperf.roofs import gpu as gpu_roofs
from flashperf.roofs import measure_roofs, roofs_for
from flashperf.roofs.gpu_plan import ALIGNED_BYTES, LEAST_TIMES_L2, GpuPlan, plan_for
from flashperf.roofs.model import COMPUTE, DISPATCH, LINK, MEMORY, SCRATCHPAD, TIMER
from flashperf.store import to_json


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "available", lambda name: "kernels are emulated")


def subject(device: FakeDevice, plan: GpuPlan = TINY) -> GpuRoofSubject:
    return GpuRoofSubject(to_json(plan), device)


# ---- sizes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gpu", [H200, L4], ids=lambda gpu: gpu.name)
def test_the_l2_holds_what_is_read_again_and_memory_is_far_larger(gpu: GpuProperties) -> None:
    plan = plan_for(gpu)
    inside, outside = plan.walks
    assert gpu.l2_bytes // 5 < inside.touched_bytes <= gpu.l2_bytes // 4
    assert inside.touched_bytes * inside.passes >= 4 << 30
    assert LEAST_TIMES_L2 * gpu.l2_bytes < outside.touched_bytes <= gpu.memory_bytes // 8
    assert (inside.name, outside.name) == ("L2", gpu.memory_name)
    assert plan.notes == ()
    for walk in plan.walks:
        for count in roofs.PATTERNS.values():  # every pattern has whole blocks
            assert walk.touched_bytes // 4 // count % roofs.PER_BLOCK == 0


def test_little_memory_is_respected_and_said() -> None:
    plan = plan_for(replace(L4, memory_bytes=2 << 30))
    assert plan.walks[1].touched_bytes <= 256 << 20
    assert "less than 8 times the L2" in plan.notes[0]


def test_planned_steps_stay_exact() -> None:
    plan = plan_for(H200)
    assert plan.shared_steps <= roofs.MOST_SHARED_STEPS
    assert plan.fma_steps <= roofs.MOST_FMA_STEPS
    assert plan.mma_steps <= roofs.MOST_MMA_STEPS
    assert plan.blocks == [264, 528, 1056]
    assert roofs.MOST_SHARED_STEPS * 4 * 32 * 7 < 1 << 24
    assert roofs.MOST_FMA_STEPS * 8 * 7 < 1 << 24
    assert roofs.MOST_MMA_STEPS * 8 * 16 * 9 < 1 << 24


def test_memory_is_called_what_its_bus_says() -> None:
    assert (H200.memory_name, L4.memory_name) == ("HBM", "DRAM")


def test_properties_are_those_of_the_runtime() -> None:
    found = {
        "name": b"NVIDIA H200",
        "multiProcessorCount": 132,
        "sharedMemPerMultiprocessor": 228 << 10,
        "l2CacheSize": 50 << 20,
        "totalGlobalMem": 141 << 30,
        "memoryBusWidth": 6144,
    }
    runtime = SimpleNamespace(getDevice=lambda: 0, getDeviceProperties=lambda number: found)
    assert read_properties(runtime) == H200


@pytest.mark.parametrize("n", [0, 4, roofs.PER_BLOCK + 4])
def test_arrays_without_whole_blocks_are_refused(n: int) -> None:
    with pytest.raises(ValueError, match="not a multiple"):
        roofs.stream("copy", [np.zeros(n, np.float32)] * 2, 1)


def test_what_would_not_stay_exact_is_refused() -> None:
    x = np.zeros(1024, np.float32)
    for array, steps in ((x, 0), (x, roofs.MOST_SHARED_STEPS + 1), (x[:512], 1), (np.zeros(1536, "f4"), 1)):
        with pytest.raises(ValueError, match="power of two"):
            roofs.shared("load", [array, x], 1, steps)
    with pytest.raises(ValueError, match="stay exact"):
        roofs.peak("f16", [x, x, x], 1, roofs.MOST_MMA_STEPS + 1)


def test_work_is_counted() -> None:
    assert roofs.stream_bytes("triad", 1000, 3) == 36_000
    assert roofs.shared_bytes("copy", 2, 10) == 2 * 10 * 256 * 32
    assert roofs.peak_operations("f32", 1, 1) == 256 * 8 * 2
    per_warp = {"tf32": 8, "f16": 16, "bf16": 16, "i8": 32}
    for number_format, k in per_warp.items():
        assert roofs.peak_operations(number_format, 3, 5) == 3 * 5 * 8 * 8 * 2 * 16 * 8 * k


# ---- one process -----------------------------------------------------------------------------------------


def test_a_process_measures_every_level_unit_and_cost(emulated: None) -> None:
    device, notes = FakeDevice(), list[str]()
    measured = subject(device)
    found = gpu_roofs.ask(lambda name: getattr(measured, name)(), TINY, notes)
    values = {(c.kind, c.name, c.how): value for c, value in found}
    assert values[MEMORY, "L2", "copy"] == pytest.approx(2 * 6 * ALIGNED_BYTES / SAMPLE_S)
    assert values[MEMORY, "HBM", "triad"] == pytest.approx(12 * ALIGNED_BYTES / SAMPLE_S)
    assert values[SCRATCHPAD, "shared memory", "load"] == pytest.approx(2 * 4 * 256 * 16 / SAMPLE_S)
    assert values[COMPUTE, "f32", "fma"] == pytest.approx(roofs.peak_operations("f32", 2, 16) / SAMPLE_S)
    assert values[COMPUTE, "i8", "mma.sync"] == pytest.approx(roofs.peak_operations("i8", 2, 4) / SAMPLE_S)
    assert values[COMPUTE, "f16", "torch"] == pytest.approx(1000 / SAMPLE_S)
    assert (COMPUTE, "f32", "torch") not in values
    assert values[LINK, "host link", "pinned to the device"] == pytest.approx((1 << 20) / SAMPLE_S)
    assert {how for kind, _, how in values if kind == LINK} == {
        f"{kind} {way} the device" for kind in ("pinned", "pageable") for way in ("to", "from")
    }
    assert values[DISPATCH, "launch in a graph", "graph"] == pytest.approx(SAMPLE_S / 10)
    assert notes == [f"timed by {HELD}"]
    sizes = {c.name: (c.level_bytes, c.used_bytes) for c, _ in found if c.kind == MEMORY}
    assert sizes == {"L2": (1 << 20, 6 * ALIGNED_BYTES), "HBM": (0, 12 * ALIGNED_BYTES)}


def test_pageable_copies_are_timed_by_the_wall(emulated: None) -> None:
    device = FakeDevice()
    measured = subject(device)
    before = device.now_s
    rates = measured.links()
    assert device.now_s - before == pytest.approx(2 * 8 * 2 * SAMPLE_S)  # events around pinned copies alone
    assert rates["pageable to the device"] != pytest.approx(rates["pinned to the device"])


def test_without_a_graph_there_is_no_cost_of_one(emulated: None) -> None:
    device = FakeDevice()
    device.records = False
    assert set(subject(device).fixed_costs()) == {"host", "enqueued", "event"}


def test_throttled_samples_are_counted_and_a_clock_without_a_hold_is_named(emulated: None) -> None:
    device = FakeDevice()
    measured = subject(device)
    device.speeds = [1980.0, 1980.0, 1000.0, 1980.0, 1980.0, 1980.0, 1980.0]
    measured.library_peaks()
    device.gives_up = True
    measured.library_peaks()
    assert measured.state() == {"timer": EVENTS, "throttled": 1}
    notes: list[str] = []
    answers = {"state": measured.state(), "fixed_costs": {"event": 1e-6}}
    gpu_roofs.ask(lambda name: answers.get(name, {}), TINY, notes)
    assert notes == [f"timed by {EVENTS}", "1 samples of the first process ran at a reduced SM clock"]


@pytest.mark.parametrize("kernel", ["stream_load", "shared_triad", "peak_bf16_mma"])
def test_a_wrong_kernel_is_not_timed(kernel: str, emulated: None, monkeypatch: pytest.MonkeyPatch) -> None:
    launch_of = launcher.call
    device = FakeDevice()

    def one_element_off(mechanism: str, launches: list) -> Any:
        call = launch_of(mechanism, launches)

        def broken() -> None:
            call()
            array = next(a for a in reversed(launches[0].args) if isinstance(a, np.ndarray))
            array.ravel()[-1] += launches[0].kernel == kernel

        return broken

    monkeypatch.setattr(launcher, "call", one_element_off)
    with pytest.raises(UserError, match=f"{kernel}: wrong result, not timed"):
        subject(device).peaks()
    assert device.now_s == 0 or kernel.startswith("peak")


@pytest.mark.skipif(not available("cuda"), reason="there is a GPU: nothing is emulated")
def test_a_worker_process_answers_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The subject by its name, the plan and the answers as JSON."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), *sys.path]))
    monkeypatch.setattr(gpu_roofs, "SUBJECT", "gpu_roof_samples:EmulatedSubject")
    monkeypatch.setattr(gpu_roofs, "plan_for", lambda gpu: replace(TINY, notes=("a note",)))
    notes: list[str] = []
    found = gpu_roofs.one_process(H200, notes)
    assert {c.kind for c, _ in found} == {SCRATCHPAD, MEMORY, LINK, COMPUTE, DISPATCH, TIMER}
    assert all(value > 0 for _, value in found)
    assert notes == ["a note", f"timed by {HELD}"]


# ---- several processes -----------------------------------------------------------------------------------


def test_processes_are_put_together_under_the_name_of_the_gpu(
    emulated: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_roofs, "gpu_properties", lambda: H200)
    measured = subject(FakeDevice())
    monkeypatch.setattr(
        gpu_roofs,
        "one_process",
        lambda gpu, notes: gpu_roofs.ask(lambda name: getattr(measured, name)(), TINY, notes),
    )
    found = measure_roofs(3, 300.0, backend="cuda")
    assert (found.backend, found.environment.device) == ("cuda", "NVIDIA H200")
    assert all(len(c.per_process) == 3 for c in found.ceilings)
    assert [c.name for c in found.levels()] == ["L2", "HBM"]  # shared memory is no cache
    call_s, launch_s = found.fixed_s()
    assert (call_s, launch_s) == (0.0, pytest.approx(SAMPLE_S / 10))
    roof = found.roof("f16", 1 << 30, 1 << 30)
    assert (roof.compute_name, roof.call_s) == ("f16 mma.sync", 0.0)
    assert found.threads_for(8) == 1


@pytest.mark.skipif(not available("cuda"), reason="there is a GPU")
def test_without_a_gpu_the_reason_is_given() -> None:
    for ask in (lambda: measure_roofs(backend="cuda"), lambda: roofs_for(backend="triton")):
        with pytest.raises(UserError, match=r"the roofs of a GPU can't be measured here: .*NVIDIA|CuPy"):
            ask()
