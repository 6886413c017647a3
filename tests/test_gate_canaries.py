"""Canaries are frozen, of the bench's own kind, and really do what their name says; what a worker's side holds."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import mutants
import numpy as np
import pytest

from flashperf import native
from flashperf.errors import UserError
from flashperf.gate import side as side_module
from flashperf.gate.canaries import (
    KINDS,
    SOURCE_HASH,
    WORKING_SETS,
    Canary,
    CanaryTimer,
    build,
    canary_of,
    working_set,
)
from flashperf.gate.side import Side, _require_tree
from flashperf.records import Case, Cost
from flashperf.registry import mechanism
from flashperf.timers import ScriptedClock

SOURCE = Path(__file__).parent.parent / "csrc" / "cpu" / "canary.cpp"


@pytest.mark.skipif(not SOURCE.exists(), reason="installed without its sources")
def test_the_source_is_the_one_whose_hash_is_recorded() -> None:
    assert hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16] == SOURCE_HASH, (
        "a canary changed: give it a new VERSION and SOURCE_HASH; older saved runs can't be compared with it"
    )
    assert '#include "kernel.h"' in SOURCE.read_text()
    assert "simd.h" not in SOURCE.read_text()  # no kernel's header: it could change with a kernel


@pytest.mark.parametrize("name", [*KINDS, "bandwidth/l1", "bandwidth/l3"])
def test_every_canary_runs_and_has_its_samples(name: str) -> None:
    canary = Canary.parse(name)
    assert canary.name.startswith(name)
    times = CanaryTimer(canary).run()
    assert len(times) in (4, 8)
    assert all(t > 0 for t in times)


def test_canaries_compute_what_they_say() -> None:
    x, y = np.ones(64, np.float32), np.zeros(64, np.float32)
    native.prepare("canary_compute", x, y, passes=2)()
    np.testing.assert_allclose(y, (1 * 0.999 + 1) * 0.999 + 1, rtol=1e-6)
    native.prepare("canary_bandwidth", x, y)()
    np.testing.assert_array_equal(y, 2)
    native.prepare("canary_dispatch", x, y)()
    np.testing.assert_array_equal(y, 1)
    touched = np.zeros(1, np.float32)
    native.prepare("canary_page_fault", touched, pages=4)()
    assert touched[0] == 1


def test_names_are_checked() -> None:
    with pytest.raises(UserError, match="did you mean compute"):
        Canary.parse("compte")
    with pytest.raises(UserError, match="unknown working-set class 'l9'"):
        Canary.parse("bandwidth/l9")
    assert Canary.parse("bandwidth").working_set == "l2"


def kind_of(**cost: int) -> str:
    import dataclasses

    toy = dataclasses.replace(
        mutants.mechanism(),
        cost=lambda case: Cost(**cost),
        ideal_bytes=lambda case: cost["bytes_read"] + cost["bytes_written"],
    )
    return canary_of(toy, mutants.case()).name


def test_a_bench_gets_the_canary_of_what_it_does() -> None:
    assert kind_of(flops=10**8, bytes_read=10**6, bytes_written=0) == "compute/l1"
    assert kind_of(flops=10**6, bytes_read=10**6, bytes_written=0) == "bandwidth/l2"
    assert kind_of(flops=10**8, bytes_read=10**9, bytes_written=0) == "bandwidth/memory"
    assert kind_of(flops=100, bytes_read=1000, bytes_written=0) == "dispatch/l1"
    assert kind_of(flops=0, bytes_read=64000, bytes_written=0, launches=64) == "dispatch/l1"
    assert kind_of(flops=0, bytes_read=10**6, bytes_written=0, allocations=3) == "page_fault/l2"
    assert list(WORKING_SETS) == sorted(WORKING_SETS, key=lambda name: WORKING_SETS[name])
    assert working_set(1) == "l1"
    case = Case.parse("tiling/packed/cpu/f32/m=128-k=192-n=576")
    assert canary_of(mechanism("tiling"), case).kind == "compute"


def test_a_canary_is_timed_on_fresh_buffers_by_the_clock_given(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ScriptedClock()
    built: list[Canary] = []

    def scripted(canary: Canary) -> Any:
        built.append(canary)
        return lambda: clock.advance(1e-3)

    monkeypatch.setattr("flashperf.gate.canaries.build", scripted)
    timer = CanaryTimer(Canary.parse("compute"), clock)
    assert timer.run() == pytest.approx([1e-3] * 8)
    timer.run()
    assert len(built) == 3
    assert build is not scripted


FILE = """
import mutants
from flashperf.pytest_plugin import bench_cases

test_toy = bench_cases(mutants.mechanism())

def test_with_more(flashperf_bench, tmp_path):
    pass

def test_asks_nothing(flashperf_bench):
    pass

def test_raises(flashperf_bench):
    raise ValueError("no")

def test_plain():
    pass
"""


def test_a_side_collects_benches_and_names_what_it_cannot_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "test_toy.py").write_text(FILE)
    side = Side(collect=[str(tmp_path / "test_toy.py")], root=str(tmp_path))
    names = side.names()
    assert names["ready"] == ["test_toy.py::test_toy[toy/right/cpu/f32/m=24-n=20]"]
    assert {name.rpartition("::")[2]: why for name, why in names["skipped"].items()} == {
        "test_with_more": "uses the fixtures tmp_path: it can only be timed inside pytest",
        "test_asks_nothing": "asks for 0 cases, not one",
        "test_raises": "ValueError: no",
    }
    (name,) = names["ready"]
    assert side.prepare(name)["one_s"] > 0
    side.fresh()
    sample = side.sample(3, 2)
    assert sample["seconds"] > 0
    assert len(side.window(0.0, 2)) == 5
    side.finish()


def test_a_broken_bench_file_is_told_and_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "test_broken.py").write_text("import no_such_module\n")
    side = Side(collect=[str(tmp_path)], root=str(tmp_path))
    assert side.benches == {}
    assert any("no_such_module" in why for why in side.problems.values())


def test_disturbed_chunks_are_timed_again_on_that_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    side = Side(cases=["tiling/packed/cpu/f32/m=128-k=192-n=576"])
    side.prepare("tiling/packed/cpu/f32/m=128-k=192-n=576")
    side.fresh()
    switches = iter([0, 0, 0, 1, 1, 1, 1, 1])  # the second chunk was disturbed
    times = iter([1000, 999_999, 1000, 1000])
    monkeypatch.setattr(side_module, "_switches", lambda: next(switches))
    monkeypatch.setattr(side_module, "_time_ns", lambda call, wait, calls: next(times))
    assert side.sample(10, 3) == {"seconds": pytest.approx(1e-7), "disturbed": 1}


def test_code_from_another_tree_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="was loaded from"):
        _require_tree(str(tmp_path))
