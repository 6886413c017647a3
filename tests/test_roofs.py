"""Roofs: how they are chosen, kept and measured; the kernels behind them at every instruction-set level."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from roofs_samples import L1, L2, roofs, spread

from flashperf import native
from flashperf.errors import UserError
from flashperf.roofs import load_roofs, measure_roofs, roofs_for, save_roofs
from flashperf.roofs import measuring as measuring_module
from flashperf.roofs import storage as storage_module
from flashperf.roofs.levels import CacheLevel, cache_levels, working_sets
from flashperf.roofs.model import DISPATCH, MEMORY, Ceiling
from flashperf.roofs.subject import STREAMS, RoofSubject, bind_peak, check_peak, check_stream
from flashperf.store import RecordError


@pytest.mark.parametrize("level", native.usable_levels())
def test_every_kernel_computes_what_it_says(level: str) -> None:
    library = native.library(level)
    peaks = [name for name in library.signatures if name.startswith("peak_")]
    assert {"peak_f32_scalar", "peak_f32_simd"} <= set(peaks)
    for kernel in peaks:
        check_peak(library, kernel)
    for pattern in STREAMS:
        check_stream(library, pattern)


def test_a_wrong_kernel_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    library = native.library()
    monkeypatch.setattr("flashperf.roofs.subject.STEPS", 7)
    call, value, _ = bind_peak(library, "peak_f32_simd")
    call()
    assert value[0] == 7
    monkeypatch.setattr(
        "flashperf.roofs.subject.bind_peak", lambda *_: (call, np.array([3.0]), np.array([100]))
    )
    with pytest.raises(UserError, match="its sums are 3 after 7 steps, not timed"):
        check_peak(library, "peak_f32_simd")
    monkeypatch.setitem(STREAMS, "load", ("roof_copy", 1))
    with pytest.raises(ValueError):
        check_stream(library, "load")
    monkeypatch.setattr("flashperf.roofs.subject.FACTOR", 0.5)
    monkeypatch.setitem(STREAMS, "triad", ("roof_copy", 2))
    with pytest.raises((UserError, ValueError)):
        check_stream(library, "triad")


def test_a_process_measures_every_pattern_and_unit() -> None:
    subject = RoofSubject(1 << 20)
    assert set(subject.streams(8192, 1)) == set(STREAMS)
    assert all(rate > 0 for rate in subject.streams(8192, 2).values())
    peaks = subject.peaks(1)
    assert list(peaks) == subject.peak_kernels()
    assert peaks["peak_f32_simd"] > peaks["peak_f32_scalar"]
    assert {"python", "native", "reading", "step"} == set(subject.fixed_costs())


def sysfs(root: Path, *caches: tuple[int, str, str, str]) -> Path:
    """A /sys with caches: level, kind, size, cores."""
    for n, (level, kind, size, cores) in enumerate(caches):
        folder = root / f"sys/devices/system/cpu/cpu0/cache/index{n}"
        folder.mkdir(parents=True)
        for name, text in (("level", str(level)), ("type", kind), ("size", size), ("shared_cpu_list", cores)):
            (folder / name).write_text(text + "\n")
    return root


def test_caches_are_read_from_sysfs(tmp_path: Path) -> None:
    data = sysfs(
        tmp_path,
        (1, "Data", "48K", "0"),
        (1, "Instruction", "32K", "0"),
        (2, "Unified", "2048K", "0"),
        (3, "Unified", "32M", "0-3,8"),
        (4, "Unified", "broken", "0"),
    )
    assert cache_levels(data) == (
        CacheLevel("L1", 48 << 10, 1),
        CacheLevel("L2", 2 << 20, 1),
        CacheLevel("L3", 32 << 20, 5),
    )
    assert cache_levels(tmp_path / "nothing") == ()


@pytest.mark.parametrize(
    "sizes", [(48, 2048, 32 << 10), (32, 256, 8192), (64, 1024), (128, 512 << 10), (32, 48, 64)]
)
@pytest.mark.parametrize("threads", [1, 4])
def test_working_sets_lie_inside_their_level_and_outside_the_one_before(
    sizes: tuple[int, ...], threads: int
) -> None:
    levels = tuple(CacheLevel(f"L{n + 1}", size << 10, 1) for n, size in enumerate(sizes))
    sets = working_sets(levels, threads, available_bytes=64 << 30)
    assert [s.name for s in sets] == [*(level.name for level in levels), "DRAM"]
    for level, touched in zip(levels, sets, strict=False):
        assert 0 < touched.thread_bytes <= level.size_bytes * 3 // 4
    assert sets[-1].thread_bytes * threads >= 2 * levels[-1].size_bytes - threads
    assert sets[-1].level_bytes == 0


def test_threads_share_a_shared_cache_and_little_memory_is_respected() -> None:
    shared = (CacheLevel("L1", 32 << 10, 1), CacheLevel("L2", 512 << 10, 4))
    assert working_sets(shared, 4, 1 << 40)[1].thread_bytes == (512 << 10) // 2 // 4
    assert working_sets(shared, 1, 80 << 20)[-1].thread_bytes == 10 << 20


def test_a_working_set_is_bound_by_the_level_that_holds_it() -> None:
    r = roofs()
    for size, name, rate in ((L1 // 2, "L1", 400e9), (L2 // 2, "L2", None), (64 * L2, "DRAM", None)):
        level, reached = r.memory(size, size)
        assert level.name == name
        if rate:
            assert reached == pytest.approx(rate, rel=1e-3)


def test_what_a_cache_can_hold_needs_not_come_from_further_out() -> None:
    size = 2 * L2
    level, reached = roofs().memory(size, size)
    assert level.name == "DRAM"
    assert reached == pytest.approx(2 * 10e9, rel=1e-3)  # half of it stays in L2
    slightly_more = roofs().memory(L2 + 1000, L2 + 1000)
    assert slightly_more[0].name == "L2"


def test_cold_caches_read_everything_from_memory_once() -> None:
    level, reached = roofs().memory(4000, 1000, from_memory_bytes=2000)
    assert level.name == "DRAM"
    assert reached == pytest.approx(20e9, rel=1e-3)


def test_reads_come_no_faster_than_loads_alone_where_both_ways_together_are_faster() -> None:
    both = Ceiling(MEMORY, "L2", "update", 1, (150e9, 150e9, 150e9), L2, L2 // 2)
    r = dataclasses.replace(roofs(), ceilings=(*roofs().ceilings, both))
    size = L2 // 2
    rates = {part: r.memory(size, size, written_bytes=size // part)[1] for part in (2, 5)}
    assert rates[2] == pytest.approx(150e9 * 16 / 15, rel=1e-3)  # L1 holds 1/16 of it
    assert rates[5] == pytest.approx(100e9 / (15 / 16 - 1 / 5), rel=1e-3)
    assert r.memory(size, size)[1] == rates[2]
    assert r.roof("f32", size, size, written_bytes=0).bytes_per_s == pytest.approx(100e9 * 16 / 15, rel=1e-3)


def test_the_best_pattern_is_the_roof_of_a_level() -> None:
    assert [(c.name, c.how) for c in roofs().levels()] == [("L1", "load"), ("L2", "load"), ("DRAM", "load")]


def test_the_fastest_unit_bounds_a_format_and_half_types_fall_back() -> None:
    r = roofs()
    assert [u.how for u in r.units("f32")] == ["fma", "scalar"]
    assert r.units("bf16")[0].how == "amx"
    assert r.units("f16")[0].name == "f32"
    assert r.units("i8") == []
    assert r.roof("bf16", 1000, 1000).compute_name == "bf16 amx"
    with pytest.raises(UserError, match="no unit was measured that computes in i8"):
        r.roof("i8", 1000, 1000)


def test_a_roof_knows_its_fixed_costs_its_uncertainty_and_its_threads() -> None:
    roof = roofs().roof("f32", 1000, 1000)
    assert roof.launch_s == pytest.approx(2e-9, rel=1e-3)
    assert roof.call_s == pytest.approx(98e-9, rel=1e-2)
    assert 0.01 < roof.uncertainty < 0.05
    assert roofs().threads_for(1) == 1
    assert roofs().threads_for(2) == 2
    assert roofs().threads_for(64) == 2
    assert roofs().roof("f32", 1000, 1000, threads=2).name == "L1 (2 threads)"
    with pytest.raises(UserError, match="with 3 threads"):
        roofs().memory(1, 1, threads=3)


def test_a_ceiling_has_the_t_interval_of_its_processes() -> None:
    ceiling = Ceiling(MEMORY, "L1", "load", 1, spread(1e9))
    assert ceiling.interval.low < 1e9 < ceiling.interval.high
    assert ceiling.value == pytest.approx(1e9, rel=1e-3)
    assert ceiling.text(ceiling.value) == "1000 MB/s"
    assert Ceiling("compute", "i8", "vnni", 1, (1e12,)).unit == "OP/s"


def test_roofs_are_kept_and_read_back(tmp_path: Path) -> None:
    path = save_roofs(roofs(), tmp_path / "deep" / "roofs.jsonl")
    assert load_roofs(path) == roofs()
    save_roofs(roofs(), path)  # in place of the old ones


def test_a_damaged_file_of_roofs_is_one_clear_error(tmp_path: Path) -> None:
    path = save_roofs(roofs(), tmp_path / "roofs.jsonl")
    broken = dataclasses.replace(roofs().ceilings[0], per_process=(1.0, -1.0))
    save_roofs(dataclasses.replace(roofs(), ceilings=(broken,)), path)
    with pytest.raises(RecordError, match="memory L1 load has values that are no rates"):
        load_roofs(path)
    path.write_text(path.read_text().partition("\n")[0] + "\n")
    with pytest.raises(RecordError, match="holds no roofs"):
        load_roofs(path)


def fake_process(monkeypatch: pytest.MonkeyPatch, seconds: float) -> list[float]:
    """Each process takes so long on the returned clock and finds one bandwidth and one cost."""
    clock = [0.0]

    def one_process(notes: list[str]) -> list[tuple[Ceiling, float]]:
        clock[0] += seconds
        notes.append("a note")
        return [
            (Ceiling(MEMORY, "L1", "load", 1, ()), 1e9 + clock[0]),
            (Ceiling(DISPATCH, "call", "python", 1, ()), 1e-7),
        ]

    monkeypatch.setattr(measuring_module, "_one_process", one_process)
    return clock


def test_every_process_gives_each_ceiling_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = fake_process(monkeypatch, 1.0)
    found = measure_roofs(4, 30.0, now=lambda: clock[0])
    assert [c.per_process for c in found.ceilings] == [
        (1e9 + 1, 1e9 + 2, 1e9 + 3, 1e9 + 4),
        (1e-7,) * 4,
    ]
    assert (found.seconds, found.notes) == (4.0, ("a note",))


def test_no_process_is_started_that_would_end_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = fake_process(monkeypatch, 9.0)
    found = measure_roofs(8, 30.0, now=lambda: clock[0])
    assert len(found.ceilings[0].per_process) == 3
    assert "3 of 8 processes: the 30 s were used up" in found.notes
    with pytest.raises(UserError, match="3 processes or more, not 2"):
        measure_roofs(2)


def test_roofs_of_this_machine_are_measured_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    calls: list[Any] = []

    def measure(progress: Any = None, backend: str = "cpu") -> Any:
        calls.append(progress)
        return roofs()

    monkeypatch.setattr(storage_module, "measure_roofs", measure)
    first, path, new = roofs_for()
    assert new
    assert path
    assert path.is_relative_to(tmp_path)
    again, _, new = roofs_for()
    assert (again, new, len(calls)) == (first, False, 1)
    path.write_text("not a record\n")
    assert roofs_for()[2]
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))  # no folder: nothing can be kept
    found, nowhere, new = roofs_for()
    assert (nowhere, new, found.ceilings) == (None, True, first.ceilings)
    assert "not kept: can't write" in found.notes[-1]
