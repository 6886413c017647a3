"""Every mixture of the pipeline computes the same function, and takes the paths that it says it takes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from flashperf import native
from flashperf.dtypes import widen
from flashperf.pipeline.buffers import Buffers
from flashperf.pipeline.calibration import calibration_of
from flashperf.pipeline.config import ModelConfig
from flashperf.pipeline.engine import CpuEngine, RecordingEngine
from flashperf.pipeline.models import load_model
from flashperf.pipeline.plan import storage_of
from flashperf.pipeline.reference import forward
from flashperf.pipeline.scenario import SCENARIOS, Scenario, custom_scenario, scenario
from flashperf.pipeline.storage import WeightStore, column_blocks
from flashperf.pipeline.subject import executed
from flashperf.pipeline.switches import STANDARD, SWITCHES, Levels, parse_levels
from flashperf.pipeline.task import Task
from flashperf.pipeline.tolerance import check_logits, limit_db
from flashperf.pipeline.weights import random_weights

# Odd sizes on purpose: head size 12, panels that are not full, one layer more than the smallest.
ODD = ModelConfig("odd", layers=2, dim=48, heads=4, ffn=104)
ODD_WEIGHTS = random_weights(ODD, seed=3)
CALIBRATION = calibration_of(ODD_WEIGHTS, ODD, lambda: np.random.default_rng(9).integers(0, 256, 64))
RAGGED = custom_scenario((7, 1, 12), steps=4, seed=1)


def pairwise_covering(seed: int = 0) -> list[dict[str, str]]:
    """Mixtures in which every pair of levels of every two switches occurs: greedy, from random candidates."""
    rng = np.random.default_rng(seed)
    names = list(SWITCHES)
    levels = [list(SWITCHES[name].levels) for name in names]
    missing = {
        (i, a, j, b)
        for i, j in itertools.combinations(range(len(names)), 2)
        for a in levels[i]
        for b in levels[j]
    }
    rows = []
    while missing:
        candidates = [[str(rng.choice(options)) for options in levels] for _ in range(60)]
        covers = [
            {(i, row[i], j, row[j]) for i, j in itertools.combinations(range(len(names)), 2)} & missing
            for row in candidates
        ]
        best = max(range(60), key=lambda n: len(covers[n]))
        missing -= covers[best]
        rows.append(dict(zip(names, candidates[best], strict=True)))
    return rows


def make_task(levels: Levels, what: Scenario = RAGGED, level: str | None = None) -> Task:
    engine = CpuEngine(level)
    return Task(engine, ODD, WeightStore(engine, ODD_WEIGHTS, CALIBRATION), Buffers(engine), what, levels)


def collected(task: Task) -> np.ndarray:
    """Logits float64 [steps + 1, tasks, vocab] of one run."""
    logits: list[np.ndarray] = []
    task.run(collect=logits)
    return widen(np.stack(logits), storage_of(task.levels))


def reference(levels: Levels, what: Scenario = RAGGED) -> np.ndarray:
    span = None if levels["span"] == "full" else what.window
    whole = forward(ODD_WEIGHTS, ODD, what.sequences(), span)
    steps = np.arange(what.steps + 1)
    return np.stack([whole[i, n - 1 + steps] for i, n in enumerate(what.lengths)], axis=1)


def label(levels: Levels) -> str:
    return "-".join(level for name, level in levels.items() if level != STANDARD[name]) or "standard"


COVERING = pairwise_covering()


@pytest.mark.parametrize("levels", COVERING, ids=label)
def test_mixtures_agree_with_float64_and_run_what_they_plan(levels: dict[str, str]) -> None:
    task = make_task(levels)
    check = check_logits(collected(task), reference(levels), levels)
    assert check.passed, check.reason
    ran, planned = executed(task), task.counts()
    assert {key: n for key, n in planned.items() if not key.startswith("host_")} == dict(ran)
    task.close()


def test_covering_really_covers_every_pair_of_levels() -> None:
    for (first, a), (second, b) in itertools.combinations(SWITCHES.items(), 2):
        for x, y in itertools.product(a.levels, b.levels):
            assert any(row[first] == x and row[second] == y for row in COVERING), (first, x, second, y)


@pytest.mark.parametrize("isa", native.usable_levels())
@pytest.mark.parametrize("flash", ["", "a", "b"])
def test_the_variants_are_right_at_every_instruction_set_level(isa: str, flash: str) -> None:
    levels = parse_levels(flash)
    check = check_logits(collected(make_task(levels, level=isa)), reference(levels), levels)
    assert check.passed, check.reason


@pytest.mark.parametrize("name", SWITCHES)
def test_every_level_changes_a_planned_call(name: str) -> None:
    planned = make_recorded(STANDARD).counts()
    for level in list(SWITCHES[name].levels)[1:]:
        levels = {**STANDARD, name: level}
        assert make_recorded(levels).counts() != planned, f"{name}={level} makes the calls of standard"


def make_recorded(levels: Levels) -> Task:
    engine = RecordingEngine()
    return Task(engine, ODD, WeightStore(engine, ODD_WEIGHTS, CALIBRATION), Buffers(engine), RAGGED, levels)


@pytest.mark.parametrize(
    "levels", [parse_levels("a"), parse_levels("b"), COVERING[0], COVERING[-1]], ids=label
)
def test_recording_counts_what_the_cpu_engine_binds(levels: dict[str, str]) -> None:
    assert make_recorded(levels).counts() == make_task(levels).counts()


def test_a_run_repeats_itself_exactly() -> None:
    task = make_task(parse_levels("a"))
    np.testing.assert_array_equal(collected(task), collected(task))


def test_a_wrong_weight_fails_the_check() -> None:
    broken = {**ODD_WEIGHTS, "layers.1.up": ODD_WEIGHTS["layers.1.up"][:, ::-1].copy()}
    engine = CpuEngine()
    for text in ("", "a"):
        levels = parse_levels(text)
        task = Task(engine, ODD, WeightStore(engine, broken), Buffers(engine), RAGGED, levels)
        assert not check_logits(collected(task), reference(levels), levels).passed


def test_limits_are_ordered_by_the_coarsest_rounding() -> None:
    f32, f16, bf16 = (limit_db({**STANDARD, "precision": p}) for p in ("f32", "f16", "bf16"))
    int8 = limit_db(parse_levels("a"))
    assert f32 > f16 > bf16 > int8 > 20


def test_nan_in_logits_is_named() -> None:
    got = reference(STANDARD)
    got[2, 1, 77] = np.nan
    check = check_logits(got, reference(STANDARD), STANDARD)
    assert not check.passed
    assert "step 2, task 1, byte 77" in check.reason


def test_arrivals_change_the_schedule_and_not_the_logits() -> None:
    # Three of four are active at first: a decoding step of four rows, one of them padding.
    later = custom_scenario((7, 1, 12, 5), steps=4, seed=1, arrivals=(0, 0, 0, 2), concurrency=4)
    for batching in SWITCHES["batching"].levels:
        levels = {**STANDARD, "batching": batching}
        served = make_task(levels, later)
        check = check_logits(collected(served), reference(levels, later), levels)
        assert check.passed, check.reason
        times = served.run()
        assert times.latencies_s.shape == times.queued_s.shape == (4,)
        assert (times.latencies_s > times.queued_s).all()
        assert (times.queued_s >= 0).all()


def test_static_scales_need_a_calibration() -> None:
    engine = CpuEngine()
    levels = {**STANDARD, "quantization": "int8_static"}
    with pytest.raises(ValueError, match="calibration"):
        Task(engine, ODD, WeightStore(engine, ODD_WEIGHTS), Buffers(engine), RAGGED, levels)


@pytest.mark.parametrize("name", [*SCENARIOS, "batch:1", "batch:32", "batch:64"])
def test_scenarios_fit_the_small_model(name: str) -> None:
    found = scenario(name)
    config, _ = load_model("small")
    assert found.capacity <= config.max_positions or name == "ragged"
    assert all(prompt.min() >= 0 and prompt.max() < config.vocab for prompt in found.prompts)
    assert found.continuation.shape == (len(found.prompts), found.steps)


def test_column_blocks_cover_whole_panels_once() -> None:
    for n, chunks in itertools.product((1, 31, 32, 33, 192, 257), (1, 3, 8)):
        blocks = column_blocks(n, chunks)
        assert [block.start for block in blocks] == [0, *(block.stop for block in blocks[:-1])]
        assert blocks[-1].stop == n
        assert all(block.start % 32 == 0 and block.stop > block.start for block in blocks)
