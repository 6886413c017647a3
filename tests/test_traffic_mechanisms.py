"""Declared bytes of every CUDA variant against those that its kernels touch, and what the model says of claims."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from flashperf import cli, registry
from flashperf.gpus import GPUS, gpu
from flashperf.problem import WrongResult
from flashperf.records import Arrays, Case
from flashperf.roofline import place
from flashperf.traffic.mechanism import CaseTraffic, case_traffic, cuda_cases, trace_case, with_traffic

MECHANISMS = {name: m for name in registry.names() if "cuda" in (m := registry.mechanism(name)).bind}
CASES = [case for m in MECHANISMS.values() for case in registry.cases(m, "test", backends=["cuda"])]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
def test_declared_bytes_are_those_that_the_kernels_touch(case: Case) -> None:
    mechanism = MECHANISMS[case.mechanism]
    if reason := mechanism.supports(case):
        pytest.skip(reason)
    _, traces, cost = trace_case(mechanism, case)
    assert len(traces) == cost.launches
    assert sum(t.read_bytes for t in traces) == pytest.approx(cost.bytes_read, rel=0.02)
    assert sum(t.written_bytes for t in traces) == pytest.approx(cost.bytes_written, rel=0.02)


def simulated(name: str, variant: str, l2_kib: int = 0, **sizes: int | str) -> CaseTraffic:
    """On an H100, with an L2 as small as the sizes are."""
    device = replace(gpu("h100"), l2_bytes=l2_kib << 10) if l2_kib else gpu("h100")
    (case,) = cuda_cases(MECHANISMS[name], [variant], sizes=dict(sizes))
    return case_traffic(MECHANISMS[name], case, device)


@pytest.mark.parametrize("op", ["bias_gelu", "swiglu", "softmax", "residual_rmsnorm"])
def test_fusion_moves_what_the_cost_model_says_it_saves(op: str) -> None:
    sizes = {"op": op, "rows": 6, "cols": 256}
    fused, split = (simulated("fusion", variant, **sizes) for variant in ("fused", "split"))
    saved = split.read_bytes + split.written_bytes - fused.read_bytes - fused.written_bytes
    assert saved == split.cost.bytes - fused.cost.bytes > 0


def test_chunks_are_found_in_a_cache_that_the_whole_does_not_fit() -> None:
    """64 KiB of x and of t through 48 KiB of L2: what the consumer reads is there if its chunk came just before."""
    whole, chunked = (simulated("cache", v, l2_kib=48, n=16384, chunk=2048) for v in ("whole", "chunked"))
    assert chunked.kernels[1].caches.l2_hit_rate == 1.0
    assert whole.kernels[1].caches.l2_hit_rate < 0.5
    assert whole.caches.memory_read_bytes > 1.5 * chunked.caches.memory_read_bytes


def test_bad_layouts_show() -> None:
    good, bad = (simulated("tiling", v, m=64, k=32, n=64) for v in ("naive", "uncoalesced"))
    assert bad.kernels[0].traffic.loads.efficiency < 0.2 < good.kernels[0].traffic.loads.efficiency
    free, conflicting = (simulated("tiling", v, m=64, k=64, n=64) for v in ("tiled_32", "bank_conflicts"))
    assert free.kernels[0].traffic.shared.conflict_degree == 1.0
    assert conflicting.kernels[0].traffic.shared.conflict_degree > 1.3


@pytest.mark.parametrize(
    ("name", "variant", "dtype", "sizes"),
    [
        ("precision", "bf16", "f32", {"m": 64, "k": 64, "n": 128}),
        ("precision", "tf32", "f32", {"m": 64, "k": 32, "n": 128}),
        ("quantization", "int8_dynamic", "f32", {"m": 64, "k": 128, "n": 128}),
        ("attention", "online", "bf16", {"heads": 1, "rows": 64, "keys": 64, "head_dim": 64}),
        ("overfusion", "fused", "f16", {"m": 32, "d": 64, "f": 64}),
        ("tiling", "pipelined", "f32", {"m": 64, "k": 32, "n": 128}),
    ],
)
def test_swizzled_tiles_meet_no_bank_conflict(
    name: str, variant: str, dtype: str, sizes: dict[str, int | str]
) -> None:
    """What ldmatrix and 128-bit loads are for: each takes as few passes over the banks as its bytes allow."""
    (case,) = cuda_cases(MECHANISMS[name], [variant], dtype, sizes=sizes)
    found = case_traffic(MECHANISMS[name], case, gpu("h100"))
    degrees = {
        k.traffic.kernel: k.traffic.shared.conflict_degree for k in found.kernels if k.traffic.shared.requests
    }
    assert degrees
    assert set(degrees.values()) == {1.0}


def test_a_placement_can_carry_what_was_simulated() -> None:
    found = simulated("cache", "whole")
    carried = with_traffic(place(1, 1, 1.0), found)
    assert carried.simulated_bytes == found.cost.bytes
    assert carried.simulated_over_declared == 1.0
    assert place(1, 1, 1.0).simulated_bytes is None


def test_a_wrong_kernel_has_no_traffic() -> None:
    """The outputs of a traced call are checked as those of any other: here against a reference that is off by one."""
    right = MECHANISMS["cache"]

    def off_by_one(case: Case, inputs: Arrays) -> Arrays:
        return {name: array + 1 for name, array in right.reference(case, inputs).items()}

    case = registry.cases(right, "test", ["cuda"])[0]
    with pytest.raises(WrongResult, match="not timed"):
        trace_case(replace(right, reference=off_by_one), case)


# ---- the command -----------------------------------------------------------------------------------------


def test_the_command_prints_declared_beside_simulated(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["traffic", "cache", "--gpu", "a100", "--lines"]) == 0
    text = capsys.readouterr().out
    assert "Simulated, not measured: A100" in text
    assert "Declared 81.9 kB, simulated 81.9 kB: ratio 1.000." in text
    assert max(map(len, text.splitlines())) <= 80


def test_the_command_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["traffic", "launch", "--variant", "whole", "--json", "--size", "n=4096"]
    assert cli.main(arguments) == 0
    (record,) = json.loads(capsys.readouterr().out)
    assert record["case"] == "launch/whole/cuda/f32/n=4096-chunks=64"
    assert record["simulated"] is True
    assert record["simulated_over_declared"] == 1.0
    assert record["kernels"][0]["traffic"]["loads"]["sectors_per_request"] == 16


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nope"], "unknown mechanism 'nope'"),
        (["cache", "--gpu", "v100"], "valid are " + ", ".join(sorted(GPUS))),
        (["cache", "--variant", "nope"], "valid are"),
        (["cache", "--size", "q=3"], "it has n, chunk"),
        (["cache", "--size", "n"], "name=number"),
        (["cache", "--size", "n=-1"], "a whole number from 1 on, not 'n=-1'"),
        (["cache", "--size", "n=0"], "a whole number from 1 on"),
        (["cache", "--size", "n=1.5"], "a whole number from 1 on"),
        (["cache", "--size", "n=many"], "size n of cache is a number, not 'many'"),
        (["cache", "--l2", "0"], "KiB"),
        (["fusion", "--size", "op=nope"], "no case of fusion"),
        (["checkpoint"], "no CUDA kernels"),
        (["tiling", "--variant", "packed"], "no CUDA kernels"),
        (["attention", "--size", "head_dim=130"], "head"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["traffic", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err
    assert len(captured.err.splitlines()) == 1
