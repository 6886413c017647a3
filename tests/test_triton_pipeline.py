"""The pipeline with Triton kernels, interpreted where there is no GPU: a covering set agrees with float64."""

from __future__ import annotations

import numpy as np
import pytest
from test_pipeline import label, pairwise_covering

from flashperf.backends import available
from flashperf.cuda.pipeline import KERNELS as CUDA_KERNELS
from flashperf.dtypes import widen
from flashperf.errors import UserError
from flashperf.pipeline.buffers import Buffers
from flashperf.pipeline.calibration import calibration_of
from flashperf.pipeline.config import ModelConfig
from flashperf.pipeline.plan import storage_of
from flashperf.pipeline.reference import forward
from flashperf.pipeline.scenario import custom_scenario
from flashperf.pipeline.storage import WeightStore
from flashperf.pipeline.switches import STANDARD, Levels, parse_levels
from flashperf.pipeline.task import Task
from flashperf.pipeline.tolerance import check_logits
from flashperf.pipeline.weights import random_weights

pytest.importorskip("torch", reason="torch is not installed (pip install 'flashperf[triton]')")
pytest.importorskip("triton", reason="triton is not installed (pip install 'flashperf[triton]')")

from triton_bounds import interpreter_fault, watched

from flashperf.kernels._launch import Launch
from flashperf.kernels._pipeline import KERNELS
from flashperf.pipeline.engines import engine_of
from flashperf.pipeline.subject import executed

pytestmark = pytest.mark.skipif(bool(interpreter_fault()), reason=interpreter_fault() or "none")

# Small, since a program of the interpreter takes milliseconds, and no size that a block fits.
ODD = ModelConfig("odd", layers=1, dim=20, heads=2, ffn=24)
ODD_WEIGHTS = random_weights(ODD, seed=3)
CALIBRATION = calibration_of(ODD_WEIGHTS, ODD, lambda: np.random.default_rng(9).integers(0, 256, 100))
RAGGED = custom_scenario((4, 1), steps=1, seed=1)
COVERING = pairwise_covering(seed=1)


def make_task(levels: Levels, weights: dict[str, np.ndarray] = ODD_WEIGHTS) -> Task:
    engine = engine_of("triton")
    return Task(engine, ODD, WeightStore(engine, weights, CALIBRATION), Buffers(engine), RAGGED, levels)


def collected(task: Task) -> np.ndarray:
    logits: list[np.ndarray] = []
    task.run(collect=logits)
    return widen(np.stack(logits), storage_of(task.levels))


def reference(levels: Levels) -> np.ndarray:
    whole = forward(ODD_WEIGHTS, ODD, RAGGED.sequences(), None if levels["span"] == "full" else RAGGED.window)
    steps = np.arange(RAGGED.steps + 1)
    return np.stack([whole[i, n - 1 + steps] for i, n in enumerate(RAGGED.lengths)], axis=1)


@pytest.mark.slow
@pytest.mark.parametrize("levels", COVERING, ids=label)
def test_mixtures_agree_with_float64(levels: dict[str, str]) -> None:
    task = make_task(levels)
    check = check_logits(collected(task), reference(levels), levels)
    assert check.passed, check.reason
    planned = {key: n for key, n in task.counts().items() if not key.startswith("host_")}
    assert planned == dict(executed(task))
    task.close()


@pytest.mark.slow
@pytest.mark.skipif(not available("triton"), reason="a GPU runs the kernels, not the interpreter")
@pytest.mark.parametrize(
    "levels", [STANDARD, parse_levels("a"), parse_levels("b")], ids=["standard", "a", "b"]
)
def test_no_access_is_out_of_bounds(levels: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    run, accesses = Launch.run, [0]

    def run_watched(launch: Launch) -> None:
        with watched(launch) as watch:
            run(launch)
        accesses[0] += watch.accesses

    monkeypatch.setattr(Launch, "run", run_watched)
    task = make_task(levels)
    check = check_logits(collected(task), reference(levels), levels)
    assert check.passed, check.reason
    assert accesses[0] > 1000
    task.close()


def test_the_kernels_are_those_of_the_cuda_pipeline() -> None:
    assert set(KERNELS) == set(CUDA_KERNELS)


def test_a_wrong_weight_fails_the_check() -> None:
    broken = {**ODD_WEIGHTS, "layers.0.up": ODD_WEIGHTS["layers.0.up"][:, ::-1].copy()}
    assert not check_logits(collected(make_task(STANDARD, broken)), reference(STANDARD), STANDARD).passed


def test_unknown_kernels_and_sizes_are_an_error_of_one_line() -> None:
    engine = engine_of("triton")
    x = engine.empty((2, 3), "f32")
    with pytest.raises(UserError, match=r"triton: sillu_f32 can't be bound: .*did you mean silu_f32"):
        engine.bind("sillu_f32", x, x)
    qkv, table, index = engine.empty((1, 9), "f32"), engine.empty((4, 1), "f32"), engine.empty((1,), "i32")
    cache, q = engine.empty((1, 1, 4, 3), "f32"), engine.empty((1, 1, 3), "f32")
    with pytest.raises(UserError, match="a head of 3 has one left over"):
        engine.bind("rope_append_f32", qkv, table, table, index, index, cache, cache, q)
