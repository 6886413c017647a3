"""Binding: the emulator without a GPU, and what is asked of CuPy with one (a stand-in records it)."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from flashperf import registry
from flashperf.cuda import attention, cache, fusion, launch, launcher, overfusion, precision, tiling
from flashperf.emulator import Launch
from flashperf.problem import WrongResult, load_problem
from flashperf.records import Case


def test_without_a_gpu_a_call_writes_the_host_arrays() -> None:
    x, w = np.ones((3, 4), np.float32), np.ones((4, 2), np.float32)
    y = np.full((3, 2), np.nan, np.float32)
    case = Case.of("tiling", "tiled_8", "cuda", "f32", {"m": 3, "k": 4, "n": 2})
    call = tiling.bind_cuda(case, {"x": x, "w": w}, {"y": y})
    assert isinstance(call, launcher.EmulatedCall)
    for _ in range(2):
        y[...] = np.nan
        call()
        call.collect()
        np.testing.assert_array_equal(y, np.full((3, 2), 4.0))


def test_rows_that_are_not_aligned_take_the_other_kernel() -> None:
    def kernel(m: int, k: int, n: int) -> str:
        x, w, y = np.zeros((m, k), np.float16), np.zeros((k, n), np.float16), np.zeros((m, n), np.float16)
        return precision.product("f16", x, w, y).kernel

    assert kernel(5, 8, 16) == "gemm_f16"
    assert kernel(5, 9, 16) == "gemm_f16_any_size"
    assert kernel(5, 8, 12) == "gemm_f16_any_size"


def test_sizes_that_do_not_fit_are_refused_with_the_reason() -> None:
    assert fusion.why_not("softmax", 4, 8192) == ""
    assert (
        fusion.why_not("softmax", 4, 8193)
        == "the fused softmax keeps a row in registers: at most 8192 columns"
    )
    assert fusion.why_not("swiglu", 4, 10**6) == ""
    assert overfusion.why_not("over", "f32", 4096, 16384).startswith("d + f = 20480 does not fit")
    assert "multiples of 16" in overfusion.why_not("over", "bf16", 100, 64)
    assert overfusion.why_not("fused", "bf16", 100, 10**6) == ""
    wide = np.zeros((1, 1, 129), np.float32)
    arrays: dict[str, Any] = {
        "q": wide,
        "k": wide[None],
        "v": wide[None],
        "slot": 0,
        "position": 0,
        "y": wide,
    }
    with pytest.raises(ValueError, match="head sizes up to 128, not 129"):
        attention.launches("online", "f32", arrays, scale=1.0)


def test_the_number_of_launches_is_what_was_asked_for() -> None:
    x = np.zeros(4096 * 4, np.float32)
    arrays = {"x": x, "y": x, "z": x.copy(), "queue": np.zeros(2, np.int32)}
    for count in (1, 7, 64, 4096):
        made = launch.launches("chunked", arrays, alpha=1.0, count=count)
        assert len(made) == count
        assert sum(int(part.args[4]) for part in made) == x.size
    assert len(launch.launches("persistent", arrays, alpha=1.0, count=4096, blocks=8)) == 1
    made = cache.launches("chunked", {"x": x, "t": x, "y": x}, 4096)
    assert [part.kernel for part in made] == ["produce", "consume"] * 4


class FakeArray:
    """A device array: its own copy of a host array."""

    def __init__(self, host: np.ndarray) -> None:
        self.copy, self.shape, self.dtype, self.size = host.copy(), host.shape, host.dtype, host.size

    def get(self) -> np.ndarray:
        return self.copy

    def set(self, host: np.ndarray) -> None:
        self.copy[...] = host


class FakeStream:
    def __enter__(self) -> FakeStream:
        return self

    def __exit__(self, *_: object) -> None: ...

    def synchronize(self) -> None: ...


class FakeKernel:
    def __init__(self, name: str, calls: list[tuple[Any, ...]]) -> None:
        self.name, self._calls, self.max_dynamic_shared_size_bytes = name, calls, 0

    def __call__(self, grid: tuple, block: tuple, args: tuple, shared_mem: int) -> None:
        self._calls.append((self.name, grid, block, args, shared_mem, self.max_dynamic_shared_size_bytes))
        for arg in args:
            if isinstance(arg, FakeArray):
                arg.copy[...] = 5.0


@pytest.fixture
def gpu_calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Launches that a stand-in for CuPy was asked for; torch is hidden."""
    calls: list[tuple[Any, ...]] = []
    module = SimpleNamespace(get_function=lambda name: FakeKernel(name, calls))
    fake = SimpleNamespace(
        asarray=FakeArray,
        RawModule=lambda **_: module,
        cuda=SimpleNamespace(get_current_stream=FakeStream),
    )
    monkeypatch.setitem(sys.modules, "cupy", fake)
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(launcher, "available", lambda name: "")
    launcher.gpu_module.cache_clear()
    yield calls
    launcher.gpu_module.cache_clear()


def test_on_a_gpu_arrays_are_copied_once_and_outputs_come_back_on_collect(gpu_calls: list) -> None:
    x, w = np.ones((3, 8), np.float16), np.ones((8, 8), np.float16)
    y = np.zeros((3, 8), np.float16)
    case = Case.of("precision", "f16", "cuda", "f16", {"m": 3, "k": 8, "n": 8})
    call = precision.bind_cuda(case, {"x": x, "w": w}, {"y": y})
    assert isinstance(call, launcher.GpuCall)
    call()
    call()
    assert [(name, grid, block) for name, grid, block, *_ in gpu_calls] == [("gemm_f16", (1, 1), (128,))] * 2
    *_, shared, opted_in = gpu_calls[0]
    assert shared == opted_in == 65536  # above 48 KiB a kernel must ask
    assert (y == 0).all()
    call.collect()
    assert (y == 5).all()
    assert (x == 5).all()  # this kernel wrote its inputs, and that must come to light


def test_poison_reaches_the_device_and_a_kernel_that_writes_its_input_is_found_out(gpu_calls: list) -> None:
    mechanism = registry.mechanism("tiling")
    case = Case.of("tiling", "naive", "cuda", "f32", {"m": 1, "k": 1, "n": 1})
    problem = load_problem(mechanism, case, emulated=True)
    call, inputs, outputs = problem.bind()
    assert isinstance(call, launcher.GpuCall)
    with pytest.raises(WrongResult, match="1 of 1 elements never written"):
        problem.check(call, inputs, outputs)
    call()
    problem.reference["y"][...] = 5.0  # what the stand-in's kernel writes everywhere
    with pytest.raises(WrongResult, match="the call changed its input x"):
        problem.check(call, inputs, outputs)


def test_null_pointers_reach_the_gpu_as_eight_bytes(gpu_calls: list) -> None:
    call = launcher.GpuCall("precision", [Launch("k", (1,), (32,), (None, np.int32(3)))], [], [])
    call()
    null, number = gpu_calls[0][3]
    assert null == 0
    assert null.dtype == np.uint64
    assert number.dtype == np.int32


def test_kernels_come_from_a_fat_binary_that_fits_else_from_their_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(RawModule=lambda **how: asked.append(how)))
    monkeypatch.setattr(launcher.binaries, "folder", lambda: tmp_path)
    key = launcher.binaries.source_key(launcher.source("cache"))
    (tmp_path / "cache.fatbin").touch()
    for made_from in ("an older source", f"{key} sm_80"):
        (tmp_path / "cache.key").write_text(made_from)
        launcher.gpu_module.cache_clear()
        launcher.gpu_module("cache")
    launcher.gpu_module.cache_clear()
    compiled, loaded = asked
    assert compiled["backend"] == "nvrtc"
    assert "produce" in compiled["code"]
    assert loaded == {"path": str(tmp_path / "cache.fatbin")}
