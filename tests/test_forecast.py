"""Predicted times: the work of a call, its price, the split over switches; none of it passes as measured."""

from __future__ import annotations

import json
import math
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from flashperf import cli
from flashperf.forecast import check_accuracy, forecast_pipeline, pricing
from flashperf.forecast.accuracy import Accuracy, Side, lines
from flashperf.forecast.pipeline import mean_occupancy
from flashperf.forecast.pricing import Price, PricingEngine, gpu_price, price_all, roof_price
from flashperf.forecast.work import format_of, work_of
from flashperf.gpus import GRAPH_LAUNCH_S, LAUNCH_S, gpu
from flashperf.machine_code import KernelCode
from flashperf.pipeline.engine import PlannedCall
from flashperf.roofline import Roof


def planned(kernel: str, *shapes: tuple[int, ...], dtype: str = "f32", **scalars: float) -> PlannedCall:
    engine = PricingEngine()
    return engine.prepare(kernel, *(engine.empty(shape, dtype) for shape in shapes), **scalars)


# ---- work ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "flops", "n_bytes"),
    [
        (planned("gemm_f32_packed", (4, 64), (1, 64, 32), (4, 32)), 2 * 4 * 64 * 32, 4 * (256 + 2048 + 128)),
        (planned("gemm_swiglu_f32_packed", (2, 8), (1, 8, 16), (1, 8, 16), (2, 16)), 4 * 2 * 8 * 16, 4 * 304),
        (
            planned("mlp_over_f32", (2, 8), (1, 8, 16), (1, 8, 16), (1, 16, 8), (2, 8), f=16),
            6 * 2 * 8 * 16,
            4 * 416,
        ),
        (
            planned("attention_online_f32", (2, 3, 8), (1, 3, 20, 8), (1, 3, 20, 8), (2, 3, 8)),
            1920,
            4 * (96 + 480),
        ),
        (planned("scores_max", (3, 2, 20), (3, 2)), 5 * 6, 4 * (60 + 6)),
        (planned("embed_f32", (5,), (256, 64), (5, 64)), 5 * 320, 2 * 4 * 320),
        (planned("take_rows_f32", (128, 64), (1,), (1, 64)), 5 * 64, 2 * 4 * 64),
    ],
    ids=lambda value: value.kernel if isinstance(value, PlannedCall) else "",
)
def test_work_of_a_call(call: PlannedCall, flops: int, n_bytes: int) -> None:
    """With half of every cache looked at."""
    found = work_of(call, 0.5)
    assert (found.flops, found.bytes) == (flops, n_bytes)


def test_the_format_is_in_the_name() -> None:
    names = (
        "gemm_f32_packed",
        "gemm_bf16_bad_tile",
        "gemm_f16_packed",
        "gemm_i8_naive",
        "gemm_w8_packed_f32",
    )
    assert [format_of(name) for name in names] == ["f32", "bf16", "f16", "i8", "f32"]


# ---- prices ----------------------------------------------------------------------------------------------


def test_the_largest_least_time_is_the_price() -> None:
    h100 = gpu("h100")
    price = gpu_price(h100, 1.0, {})
    few = price(planned("gemm_f32_packed", (1, 64), (2, 64, 32), (1, 64)))
    assert (few.kind, few.seconds) == ("launch", GRAPH_LAUNCH_S)
    large = price(planned("gemm_f32_packed", (4096, 4096), (128, 4096, 32), (4096, 4096)))
    assert large.kind == "compute"
    assert large.seconds == pytest.approx(2 * 4096**3 / h100.peaks["f32"])
    streaming = price(planned("gemm_f32_packed", (1, 8192), (256, 8192, 32), (1, 8192)))
    assert streaming.kind == "memory"
    assert streaming.seconds == pytest.approx(4 * (8192**2 + 2 * 8192) / h100.bytes_per_s)
    copied = price(planned("stage_f32", (16_000_000,), (16_000_000,)))
    assert (copied.kind, copied.seconds) == ("link", pytest.approx(LAUNCH_S + 1e-3))


def test_few_blocks_leave_most_sms_idle() -> None:
    """A product of 128 x 128 is one block of 132 SMs."""
    price = gpu_price(gpu("h100"), 1.0, {})
    one = price(planned("gemm_f32_packed", (128, 8192), (4, 8192, 32), (128, 128)))
    assert one.kind == "compute"
    assert one.seconds == pytest.approx(132 * 2 * 128 * 128 * 8192 / gpu("h100").peaks["f32"])


def test_occupancy_is_weighted_by_time() -> None:
    code = {"pipeline": {"square_f32": KernelCode("square_f32", "sm_90", 64, 0, 0, {})}}
    found = gpu_price(gpu("h100"), 1.0, code)(planned("square_f32", (64,), (64,)))
    assert found.occupancy == 0.5  # 64 registers: 4 blocks of 256 threads, of 8
    prices = {"a": Price(1.0, "memory", 0.25), "b": Price(3.0, "memory", 0.75), "c": Price(9.0, "link")}
    assert mean_occupancy(Counter(a=3, b=1, c=1), prices) == pytest.approx(0.5)
    assert mean_occupancy(Counter(c=1), prices) is None


def test_what_the_host_does_is_left_out_by_name() -> None:
    call = planned("square_f32", (64,), (64,))
    keys = {f"{call.key}@pool", "host_mask(4x4,window=0)", "host_dispatch(square_f32)", "fresh_pages(4096)"}
    found = price_all(keys, {call.key: call}, gpu_price(gpu("h100"), 1.0, {}), LAUNCH_S)
    assert {key.partition("(")[0]: price.kind for key, price in found.items()} == {
        "square_f32": "launch",
        "host_mask": "left out",
        "host_dispatch": "dispatch",
        "fresh_pages": "left out",
    }


def roofs() -> SimpleNamespace:
    """Roofs that any call takes the same rates from; ``asked`` keeps the working sets."""
    made = SimpleNamespace(asked=[], fixed_s=lambda: (1e-6, 1e-7))

    def roof(number_format: str, moved: int, working_set: int, written_bytes: int) -> Roof:
        made.asked.append((moved, working_set))
        return Roof("stub", 1e10, 1e10, "a test", 1e-7)

    made.roof = roof
    return made


def test_on_a_cpu_the_whole_model_passes_between_two_calls() -> None:
    stub, call = roofs(), planned("square_f32", (1000,), (1000,))
    assert roof_price(stub, 1 << 20, 1.0)(call).seconds == pytest.approx(8e-7)
    roof_price(stub, 0, 1.0)(call)
    assert stub.asked == [(8000, 1 << 20), (8000, 32000)]


# ---- the split -------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Units from formats: the machine code has tests of its own, and takes a minute to compile."""
    monkeypatch.setattr(pricing, "why_not", lambda: "no nvcc in this test")


def test_factors_multiply_to_the_whole() -> None:
    found = forecast_pipeline(gpu("h100"), flash="a")
    assert math.prod(share.ratio for share in found.shares) == pytest.approx(found.ratio)
    assert sum(a for a, _ in found.parts.values()) == pytest.approx(found.standard_s)
    assert sum(b for _, b in found.parts.values()) == pytest.approx(found.flash_s)
    assert found.left_out["fresh_pages"][0] == 0
    assert not found.code_known


def test_the_same_variant_has_no_slowdown() -> None:
    found = forecast_pipeline(gpu("a100"), flash="fusion=fused")
    assert (found.ratio, found.shares) == (1.0, ())


def test_a_faster_gpu_is_predicted_to_be_no_slower() -> None:
    times = [forecast_pipeline(gpu(name), flash="tiling=bad_tile") for name in ("l4", "h100", "h200", "b200")]
    assert [t.standard_s for t in times] == sorted((t.standard_s for t in times), reverse=True)


# ---- the commands ----------------------------------------------------------------------------------------


def test_explain_says_that_it_predicts(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", "--backend", "cuda", "--gpu", "h100", "--flash", "fusion=split"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("Predicted for H100 SXM5 80 GB, which is not here: nothing was measured\n")
    assert "Left out: caches" in text
    assert "launch costs are assumptions" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80


def test_explain_as_json_says_so_too(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["explain", "--backend", "cuda", "--gpu", "a100", "--flash", "fusion=split", "--json"]
    assert cli.main(arguments) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["predicted"], record["measured"], record["gpu"]) == (True, False, "a100")
    assert [row["switch"] for row in record["switches"]] == ["fusion"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--gpu", "h100"], "--backend cuda"),
        (["--gpu", "v100", "--backend", "cuda"], "valid are a100"),
        (["--gpu", "h100", "--backend", "cuda", "--out", "there"], "leave out --out"),
        (["m:f", "--gpu", "h100", "--backend", "cuda"], "leave out MODULE:FACTORY"),
        (["--gpu", "h100", "--backend", "cuda", "--model", "nope"], "unknown model"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err
    assert len(captured.err.splitlines()) == 1


# ---- how far it holds ------------------------------------------------------------------------------------


def test_both_variants_are_predicted_and_measured() -> None:
    """Real calls of a tiny model; only that everything is there and positive."""
    found = check_accuracy(roofs(), "stub", model="shape:tiny", flash="fusion=split,dispatch=eager", runs=1)
    for side in (found.standard, found.flash):
        assert min(side.predicted_s, side.isolated_s, side.measured_s) > 0
    assert {"square_f32", "gemm_f32_packed"} <= set(found.kernels)
    assert np.isfinite([found.ratio_error, found.typical_factor]).all()
    assert any("off by" in line for line in lines(found))


def test_errors_are_relative_to_what_was_measured() -> None:
    found = Accuracy("x", Side(1.0, 1.5, 2.0), Side(3.0, 4.0, 4.0), {"a": (1.0, 2.0), "b": (1.0, 4.0)}, 0.5)
    assert (found.standard.error, found.flash.error) == (-0.5, -0.25)
    assert found.ratio_error == pytest.approx(0.5)  # predicted 3x, measured 2x
    assert found.typical_factor == 3.0
    assert any("busy: 50 %" in line for line in lines(found))
    quiet = Accuracy("x", found.standard, found.flash, found.kernels, 0.0)
    assert not any("busy" in line for line in lines(quiet))
