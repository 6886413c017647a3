"""The pipeline on CUDA, emulated where there is no GPU: every mixture of a covering set agrees with float64."""

from __future__ import annotations

import numpy as np
import pytest
from test_pipeline import label, pairwise_covering

from flashperf.cuda.pipeline import KERNELS
from flashperf.dtypes import widen
from flashperf.errors import UserError
from flashperf.pipeline.buffers import Buffers
from flashperf.pipeline.calibration import calibration_of
from flashperf.pipeline.config import ModelConfig
from flashperf.pipeline.cuda_engine import CudaEngine, DeviceSequence
from flashperf.pipeline.engine import RecordingEngine
from flashperf.pipeline.plan import storage_of
from flashperf.pipeline.reference import forward
from flashperf.pipeline.scenario import custom_scenario
from flashperf.pipeline.storage import WeightStore
from flashperf.pipeline.subject import PipelineSubject, executed
from flashperf.pipeline.switches import STANDARD, Levels, parse_levels
from flashperf.pipeline.task import Task
from flashperf.pipeline.tolerance import check_logits
from flashperf.pipeline.weights import random_weights

# Sizes that no tile of a kernel fits, but for the over-fused MLP on Tensor Cores, which takes multiples of 16.
ODD = ModelConfig("odd", layers=2, dim=48, heads=4, ffn=112)
ODD_WEIGHTS = random_weights(ODD, seed=3)
CALIBRATION = calibration_of(ODD_WEIGHTS, ODD, lambda: np.random.default_rng(9).integers(0, 256, 500))
RAGGED = custom_scenario((7, 1, 12), steps=4, seed=1)
COVERING = pairwise_covering(seed=1)
MEMORY = ("stage_", "fresh_pages(", "host_")


def make_task(levels: Levels, recorded: bool = False) -> Task:
    engine = RecordingEngine() if recorded else CudaEngine()
    weights = WeightStore(engine, ODD_WEIGHTS, CALIBRATION)
    return Task(engine, ODD, weights, Buffers(engine), RAGGED, levels)


def collected(task: Task) -> np.ndarray:
    logits: list[np.ndarray] = []
    task.run(collect=logits)
    return widen(np.stack(logits), storage_of(task.levels))


def reference(levels: Levels) -> np.ndarray:
    whole = forward(ODD_WEIGHTS, ODD, RAGGED.sequences(), None if levels["span"] == "full" else RAGGED.window)
    steps = np.arange(RAGGED.steps + 1)
    return np.stack([whole[i, n - 1 + steps] for i, n in enumerate(RAGGED.lengths)], axis=1)


@pytest.mark.slow
@pytest.mark.parametrize("levels", [*COVERING, STANDARD, parse_levels("a"), parse_levels("b")], ids=label)
def test_mixtures_agree_with_float64_and_run_what_they_plan(levels: dict[str, str]) -> None:
    task = make_task(levels)
    for _ in range(2):  # the second time through graphs
        check = check_logits(collected(task), reference(levels), levels)
        assert check.passed, check.reason
    ran, planned = executed(task), task.counts()
    assert {key: 2 * n for key, n in planned.items() if not key.startswith("host_")} == dict(ran)
    assert planned == make_task(levels, recorded=True).counts()
    task.close()


@pytest.mark.slow
def test_a_step_is_one_graph_and_two_where_weights_stream_in() -> None:
    def graphs(**levels: str) -> list[int]:
        task = make_task({**STANDARD, **levels})
        replays = [step.program.replay for step in task.steps]
        assert all(isinstance(replay, DeviceSequence) for replay in replays)
        return [replay.graphs for replay in replays]

    assert set(graphs()) == {1}
    assert set(graphs(allocation="fresh")) == {1}
    assert all(count > ODD.layers for count in graphs(transfer="streamed_tiles"))


@pytest.mark.slow
def test_a_wrong_weight_fails_the_check() -> None:
    broken = {**ODD_WEIGHTS, "layers.1.up": ODD_WEIGHTS["layers.1.up"][:, ::-1].copy()}
    engine = CudaEngine()
    task = Task(engine, ODD, WeightStore(engine, broken), Buffers(engine), RAGGED, STANDARD)
    assert not check_logits(collected(task), reference(STANDARD), STANDARD).passed


@pytest.mark.slow
def test_the_subject_measures_isolated_calls_and_counts_what_ran() -> None:
    subject = PipelineSubject("shape:tiny", "single", backend="cuda")
    levels = parse_levels("dispatch=eager")
    assert subject.peak_memory(STANDARD)["peak_bytes"] > 1e5
    assert subject.check([levels])[0] > 100
    times = subject.isolated([STANDARD])
    assert all(sample > 0 for key in times for sample in (*times[key]["warm"], *times[key]["cold"]))
    assert subject.profile(STANDARD)["kernel_s"] > 0


def test_every_kernel_of_the_covering_set_is_there() -> None:
    asked: set[str] = set()
    for levels in COVERING:
        asked |= {key.partition("(")[0] for key in make_task(levels, recorded=True).counts()}
    computing = {kernel for kernel in asked if not f"{kernel}(".startswith(MEMORY)}
    assert computing <= set(KERNELS), f"no launches on CUDA for {sorted(computing - set(KERNELS))}"


def test_sizes_that_a_kernel_does_not_take_are_an_error_of_one_line() -> None:
    engine = CudaEngine()
    odd = ModelConfig("odd", layers=1, dim=36, heads=2, ffn=56)
    weights = WeightStore(engine, random_weights(odd))
    levels = parse_levels("precision=bf16,fusion=over")
    with pytest.raises(UserError, match=r"cuda: mlp_over_bf16 can't be bound: .* multiples of 16"):
        Task(engine, odd, weights, Buffers(engine), RAGGED, levels)
