"""Planning counts what tasks bind: mixtures counted from shared parts against mixtures lowered whole."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

from flashperf.attribution import call_counts
from flashperf.explain.packed import pack_counts, unpack_counts
from flashperf.explain.planned import Planner, count_all, find_active, mixture
from flashperf.pipeline.buffers import Buffers
from flashperf.pipeline.config import ModelConfig
from flashperf.pipeline.engine import CpuEngine
from flashperf.pipeline.scenario import custom_scenario
from flashperf.pipeline.storage import WeightStore
from flashperf.pipeline.switches import STANDARD, SWITCHES, parse_levels
from flashperf.pipeline.task import Task
from flashperf.pipeline.weights import random_weights

ODD = ModelConfig("odd", layers=3, dim=48, heads=4, ffn=104)
ODD_WEIGHTS = random_weights(ODD, seed=3)
SERVED = custom_scenario((7, 2, 12, 3), steps=3, seed=1, arrivals=(0, 0, 1, 6), concurrency=2)
ALONE = custom_scenario((9,), steps=3, seed=1)


def random_mixtures(count: int) -> list[dict[str, str]]:
    rng = np.random.default_rng(5)
    return [
        {name: str(rng.choice(list(switch.levels))) for name, switch in SWITCHES.items()}
        for _ in range(count)
    ]


@pytest.mark.parametrize("what", [SERVED, ALONE], ids=["served", "alone"])
def test_counts_are_those_of_a_task(what: object) -> None:
    planner = Planner(ODD, what)  # type: ignore[arg-type]
    for levels in [STANDARD, parse_levels("a"), parse_levels("b"), *random_mixtures(24)]:
        engine = CpuEngine()
        store = WeightStore(engine, ODD_WEIGHTS, lambda name: 0.1)
        task = Task(engine, ODD, store, Buffers(engine), what, levels)  # type: ignore[arg-type]
        assert planner.counts(levels) == task.counts(), levels
        task.close()


def test_switches_that_change_no_call_are_inactive() -> None:
    active = {s.name for s in find_active(Planner(ODD, ALONE), STANDARD, parse_levels("a")) if s.active}
    assert "batching" not in active, "one task is one task, however it is batched"
    assert {"dispatch", "transfer", "allocation", "preprocessing"} <= active
    active = {s.name for s in find_active(Planner(ODD, SERVED), STANDARD, parse_levels("b")) if s.active}
    assert active == {"fusion", "batching", "dispatch", "transfer", "allocation", "checkpoint"}


def test_every_switch_can_be_active_at_once() -> None:
    flash = parse_levels("a,span=window,checkpoint=every_n_async")
    planner = Planner(ODD, SERVED)
    assert all(switch.active for switch in find_active(planner, STANDARD, flash))


def test_a_pool_shows_in_the_keys() -> None:
    planner = Planner(ODD, ALONE)
    pooled = planner.counts({**STANDARD, "allocation": "fixed_pool"})
    assert {key.removesuffix("@pool") for key in pooled} == set(planner.counts(STANDARD))
    assert all(key.endswith("@pool") for key in pooled)


def test_cover_and_record_of_counts() -> None:
    rng = np.random.default_rng(2)
    counts = {
        mask: {f"call{i}": int(rng.integers(1, 9)) for i in rng.choice(40, 6, replace=False)}
        for mask in range(32)
    }
    packed = call_counts(counts, 5)
    cover = packed.cover()
    assert set().union(*(counts[mask] for mask in cover)) == set().union(*counts.values())
    assert len(cover) < 32
    again = unpack_counts(json.loads(json.dumps(pack_counts(packed))))
    assert len(again) == 32
    assert {mask: again.of(mask) for mask in range(32)} == counts


@pytest.mark.parametrize("what", [SERVED, ALONE], ids=["served", "alone"])
def test_all_mixtures_at_once_are_counted_as_one_by_one(what: object) -> None:
    planner = Planner(ODD, what)  # type: ignore[arg-type]
    switches = find_active(
        planner, STANDARD, parse_levels("b,dispatch=eager,preprocessing=rebuilt,span=window")
    )
    counts = count_all(planner, switches)
    assert len(counts) == 2 ** sum(switch.active for switch in switches)
    for mask in range(len(counts)):
        assert counts.of(mask) == Planner(ODD, what).counts(mixture(switches, mask))  # type: ignore[arg-type]
    assert all(counts.matrix.sum(axis=0) > 0), "no call that no mixture makes"


def test_schedules_depend_on_batching_alone() -> None:
    for first, second in itertools.pairwise(random_mixtures(6)):
        same = {**second, "batching": first["batching"]}
        planner = Planner(ODD, SERVED)
        planner.counts(first)
        planner.counts(same)
        assert len(planner._schedules) == 1
