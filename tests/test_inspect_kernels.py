"""The machine code of every CUDA kernel against the table of what it must hold, and ``flashperf inspect``."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from flashperf import cli, registry
from flashperf.commands import inspect as command
from flashperf.cuda.launcher import source
from flashperf.errors import UserError
from flashperf.gpus import GPUS, LAUNCH_S, gpu
from flashperf.machine_code import ARCHITECTURES, LIMITS, KernelCode, compile_kernels, toolchain, why_not
from flashperf.predict.expectations import EXPECTATIONS, expected_of, failures
from flashperf.predict.inspection import Inspected, cuda_files, inspect
from flashperf.predict.launches import largest, launches
from flashperf.predict.roofs import predict, predict_case, unit_of
from flashperf.records import Cost

needs_tools = pytest.mark.skipif(bool(why_not()), reason=why_not())
#: Compiling one takes seconds; the results are kept.
LONG = ("attention", "overfusion", "pipeline", "precision", "quantization")
EACH_FILE = [
    pytest.param(name, marks=pytest.mark.slow if name.startswith(LONG) else ()) for name in cuda_files()
]
EACH_ARCHITECTURE = [
    pytest.param(name, marks=() if name == "sm_90a" else pytest.mark.slow) for name in ARCHITECTURES
]


@cache
def inspected(mechanism: str, architecture: str) -> dict[str, Inspected]:
    return {one.code.name: one for one in inspect([mechanism], architecture)[mechanism]}


def code(name: str, **opcodes: int) -> KernelCode:
    return KernelCode(name, "sm_90", 32, 0, 0, {k.replace("_", "."): n for k, n in opcodes.items()}, 0)


# ---- the table -------------------------------------------------------------------------------------------


@needs_tools
@pytest.mark.parametrize("architecture", EACH_ARCHITECTURE)
@pytest.mark.parametrize("mechanism", EACH_FILE)
def test_kernels_hold_what_they_must(mechanism: str, architecture: str) -> None:
    wrong = [
        f"{one.code.name}: {what}"
        for one in inspected(mechanism, architecture).values()
        for what in one.failures
    ]
    assert not wrong


@pytest.mark.slow
@needs_tools
def test_no_row_of_the_table_is_about_nothing() -> None:
    kernels = [(name, kernel) for name in cuda_files() for kernel in inspected(name, "sm_90a")]
    dead = [
        row for row in EXPECTATIONS if not any(row.applies(*one, row.architectures[0]) for one in kernels)
    ]
    assert not dead


@pytest.mark.slow
@needs_tools
def test_products_have_rows_and_other_kernels_may_have_none() -> None:
    """A kernel that multiplies matrices says on which unit: what it is must not change unseen."""
    for name in cuda_files():
        for kernel, one in inspected(name, "sm_90a").items():
            ffma = one.code.count("FFMA")  # unrolled row-wise kernels have some too, among much else
            if one.code.tensor_core or (ffma >= 64 and ffma >= 0.06 * sum(one.code.opcodes.values())):
                assert expected_of(name, kernel, "sm_90a"), f"{name}: {kernel}"


def test_a_kernel_that_is_not_as_expected_is_named() -> None:
    good = code("gemm_bf16", HMMA=64, LDSM=16, LDGSTS_128=32)
    assert failures("precision", good, "sm_80") == []
    on_fma = replace(good, opcodes={"FFMA": 64, "LDG.128": 4})
    assert failures("precision", on_fma, "sm_80") == [
        "no HMMA (mma.sync)",
        "no LDSM (mma.sync)",
        "no LDGSTS.128 (tiles come by 16-byte cp.async, not through registers)",
        "4 LDG.128 (tiles come by 16-byte cp.async, not through registers)",
    ]
    assert failures("precision", code("gemm_f32", FFMA=9, HMMA=1, LDGSTS_128=1), "sm_80")
    assert failures("precision", code("gemm_f16", HGMMA=9, LDSM=1, LDGSTS_128=1), "sm_90a") == []
    assert failures("precision", code("gemm_f16", HGMMA=9, LDSM=1, LDGSTS_128=1), "sm_80")


def test_spills_are_never_expected() -> None:
    spilled = replace(code("anything", LDL=3, STL=2), spill_bytes=20)
    assert failures("precision", spilled, "sm_80") == ["20 spilled"]
    indexed = replace(spilled, spill_bytes=0)
    assert failures("precision", indexed, "sm_80") == ["5 accesses of local memory"]
    assert replace(spilled, spill_bytes=None).spilled


# ---- occupancy -------------------------------------------------------------------------------------------


@needs_tools
@pytest.mark.parametrize("architecture", EACH_ARCHITECTURE)
def test_over_fusing_costs_occupancy(architecture: str) -> None:
    """In f32. On Tensor Cores the tiled products hold as few warps, for the sake of reuse in registers."""
    kernels = inspected("overfusion", architecture)
    over, tiled = kernels["mlp_over_f32"].occupancy, kernels["product_f32"].occupancy
    assert over is not None
    assert tiled is not None
    assert over.fraction < tiled.fraction
    if architecture == "sm_90a":
        assert "shared memory" in over.limiters


@needs_tools
def test_fused_rows_hold_fewer_warps_than_passes() -> None:
    kernels = inspected("fusion", "sm_90a")
    fused, split = kernels["fused_residual_rmsnorm_bf16"].occupancy, kernels["add_bf16"].occupancy
    assert fused is not None
    assert split is not None
    assert fused.fraction < split.fraction == 1.0


def test_launches_are_read_once_and_kept() -> None:
    first = launches("tiling")
    assert launches("tiling") == first
    blocks = largest(first)
    assert blocks["tiling", "pipelined"].shared_bytes == 49152
    assert blocks["tiling", "tiled_32"].threads == 1024
    assert launches("checkpoint") == {}


# ---- bounds ----------------------------------------------------------------------------------------------


def test_known_gpus_are_of_known_architectures() -> None:
    for one in GPUS.values():
        assert one.architecture in ARCHITECTURES
        assert one.architecture.rstrip("a") in LIMITS
        assert set(one.peaks) == {"f32", "tf32", "f16", "i8"}
        assert one.peaks["f32"] <= one.peaks["tf32"] < one.peaks["f16"] < one.peaks["i8"]
        assert one.source
    assert gpu("H100").name == gpu("h-100").name == "h100"
    with pytest.raises(UserError, match="valid are a100"):
        gpu("v100")


def test_the_largest_roof_is_the_bound() -> None:
    h100 = gpu("h100")
    streaming = predict("stream", Cost(10, 3_350_000_000, 0), "f32", h100)
    assert (streaming.bound, streaming.seconds) == ("memory", pytest.approx(1e-3))
    product = predict("product", Cost(989_400_000_000, 8, 8), "f16", h100)
    assert (product.bound, product.seconds) == ("compute", pytest.approx(1e-3))
    many = predict("many", Cost(1, 1, 1, launches=400), "f32", h100)
    assert (many.bound, many.seconds) == ("launch", pytest.approx(400 * LAUNCH_S))
    half_filled = predict("product", Cost(989_400_000_000, 8, 8), "f16", h100, filled=0.5)
    assert half_filled.seconds == pytest.approx(2e-3)


def test_the_unit_is_read_from_the_machine_code() -> None:
    tensor, fma, dp4a = code("t", HMMA=1), code("f", FFMA=1), code("d", DP4A=1)
    assert unit_of("bf16", [fma, tensor]) == "f16"
    assert unit_of("tf32", [tensor]) == "tf32"
    assert unit_of("bf16", [fma]) == "f32"
    assert unit_of("i8", [dp4a]) == "dp4a"
    assert unit_of("i8", [code("i", IMMA=2)]) == "i8"
    assert [unit_of(name, None) for name in ("f32", "bf16", "i8")] == ["f32", "f16", "i8"]
    assert predict("d", Cost(4 * 66_900_000_000, 1, 1), "dp4a", gpu("h100")).compute_s == pytest.approx(1e-3)


def test_a_case_is_bound_by_its_own_cost() -> None:
    mechanism = registry.mechanism("cache")
    case = registry.cases(mechanism, "bench", ["cuda"])[0]
    found = predict_case(mechanism, case, gpu("a100"))
    assert found.memory_s == mechanism.cost(case).bytes / gpu("a100").bytes_per_s


# ---- the command -----------------------------------------------------------------------------------------


@needs_tools
def test_the_command_prints_kernels_and_bounds(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["inspect", "cache", "--arch", "sm_80"]) == 0
    text = capsys.readouterr().out
    assert "cache, compiled for sm_80" in text
    assert "All 2 kernels hold what they must, and none spills." in text
    assert "Predicted, not measured" in text
    assert all(name in text for name in GPUS)
    assert max(len(line) for line in text.splitlines()) <= 80


@needs_tools
def test_the_command_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["inspect", "cache", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["code"]["name"] for row in rows] == ["consume", "produce"]
    assert rows[0]["code"]["opcodes"]["LDG.128"] == 2


def test_what_is_not_as_expected_fails_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = Inspected("cache", code("produce", LDG=1), None, None, ("no LDG.128 (why)",))
    monkeypatch.setattr("flashperf.predict.inspection.inspect", lambda names, arch: {"cache": [bad]})
    assert command.inspect("cache", "sm_90a") == 1
    assert "not as expected: produce: no LDG.128 (why)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nope"], "unknown mechanism or CUDA file 'nope'"),
        (["checkpoint"], "no CUDA kernels"),
        (["cache", "--arch", "sm_91"], "valid are sm_100, sm_80, sm_89, sm_90a"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["inspect", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err
    assert len(captured.err.splitlines()) == 1


def test_without_nvcc_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(toolchain, "find", lambda name: None)
    assert cli.main(["inspect", "cache"]) == 2
    assert (
        "nvcc not found (install a CUDA toolkit, or pip install nvidia-cuda-nvcc" in capsys.readouterr().err
    )


@needs_tools
@needs_tools
@pytest.mark.parametrize("columns", [40, 60])
def test_in_a_narrow_terminal_nothing_is_cut(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert cli.main(["inspect", "cache"]) == 0
    text = capsys.readouterr().out
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= columns
    assert all(name in text for name in (*GPUS, "chunked", "whole", "regs", "shared"))


def test_a_mechanism_s_kernels_are_those_of_its_file() -> None:
    assert set(inspected("cache", "sm_90a")) == set(compile_kernels(Path(source("cache")), "sm_90a"))
