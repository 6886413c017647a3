"""Schedules of requests: who runs with whom, what is padded, that every token is made once."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from flashperf.errors import UserError
from flashperf.pipeline.batching import MAX_PREFILL_ROWS, grouped, schedule
from flashperf.pipeline.marks import Marks
from flashperf.pipeline.scenario import custom_scenario, scenario
from flashperf.pipeline.switches import SWITCHES

LEVELS = list(SWITCHES["batching"].levels)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", ["single", "batch", "batch:32", "serve"])
def test_every_prompt_runs_once_and_every_token_is_decoded_in_order(name: str, level: str) -> None:
    what = scenario(name)
    planned = schedule(what, level)
    seen: Counter[int] = Counter()
    steps: dict[int, list[int]] = {}
    clocks = [turn.clock for turn in planned.iterations]
    assert clocks == sorted(set(clocks))
    for turn in planned.iterations:
        for group in turn.prefills:
            seen.update(group.tasks)
            assert all(what.arrivals[task] <= turn.clock for task in group.tasks)
        assert len(set(turn.decode.slots)) == len(turn.decode.slots), "two tasks in one slot"
        assert max(turn.decode.slots) < planned.slots
        assert len(turn.decode.tasks) <= turn.decode.rows <= planned.slots
        for task, step in zip(turn.decode.tasks, turn.decode.steps, strict=True):
            steps.setdefault(task, []).append(step)
    assert seen == Counter(range(len(what.prompts)))
    assert all(steps[task] == list(range(what.steps)) for task in seen)


def test_levels_group_prompts_as_they_say() -> None:
    lengths = [3, 4, 17, 30, 5]
    assert grouped(lengths, "single") == [[0], [1], [2], [3], [4]]
    assert grouped(lengths, "packed") == grouped(lengths, "padded") == [[0, 1, 2, 3, 4]]
    assert grouped(lengths, "bucketed") == [[0, 1], [4], [2, 3]]


@pytest.mark.parametrize("level", ["packed", "padded", "bucketed"])
def test_a_prefill_has_a_limited_number_of_rows(level: str) -> None:
    lengths = [2000, 3000, 2500, 4000, 9000, 100]
    groups = grouped(lengths, level)
    assert sorted(index for group in groups for index in group) == list(range(6))
    for group in groups:
        sizes = [lengths[index] for index in group]
        rows = sum(sizes) if level == "packed" else max(sizes) * len(sizes)
        assert rows <= MAX_PREFILL_ROWS or len(group) == 1


def test_rows_tell_tokens_from_padding() -> None:
    what = custom_scenario((3, 9), steps=2)
    assert schedule(what, "packed").rows(what.lengths) == (16, 16)
    assert schedule(what, "padded").rows(what.lengths) == (16, 22)
    assert schedule(what, "single").rows(what.lengths) == (16, 16)


def test_requests_wait_for_a_slot() -> None:
    what = custom_scenario((4, 4, 4), steps=3, arrivals=(0, 0, 0), concurrency=2)
    first, *_ = schedule(what, "packed").iterations
    assert first.decode.tasks == (0, 1)
    admitted = {
        t: turn.clock for turn in schedule(what, "packed").iterations for g in turn.prefills for t in g.tasks
    }
    assert admitted == {0: 0, 1: 0, 2: 3}


def test_decoding_is_padded_to_a_power_of_two_within_the_slots() -> None:
    what = custom_scenario((4,) * 6, steps=2, arrivals=(0, 0, 0, 1, 1, 1), concurrency=6)
    assert [turn.decode.rows for turn in schedule(what, "packed").iterations] == [4, 6, 4]


def test_an_idle_scheduler_goes_on_at_the_next_arrival() -> None:
    what = custom_scenario((4, 4), steps=2, arrivals=(0, 50), concurrency=2)
    assert [turn.clock for turn in schedule(what, "packed").iterations] == [0, 1, 50, 51]


def test_arrivals_come_from_the_seed() -> None:
    assert scenario("serve", 1).arrivals == scenario("serve", 1).arrivals
    assert scenario("serve", 1).arrivals != scenario("serve", 2).arrivals
    assert scenario("serve").serves
    assert not scenario("batch").serves


@pytest.mark.parametrize("name", ["batch:0", "batch:x", "batch:", "serve:3", "sevre"])
def test_unknown_scenarios_are_refused(name: str) -> None:
    with pytest.raises(UserError):
        scenario(name)


def test_marks_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([10.0, 11.0, 12.0, 13.0, 20.0, 21.0, 22.0, 30.0])
    monkeypatch.setattr("flashperf.pipeline.marks.time.perf_counter", lambda: next(clock))
    marks = Marks()  # 10
    marks.turn(0)  # 11
    marks.logits(((0, 0),))  # 12
    marks.logits(((0, 1),))  # 13
    marks.turn(5)  # 20
    marks.logits(((1, 0),))  # 21
    marks.logits(((1, 1),))  # 22
    times = marks.times((0, 3))
    assert times.total_s == 20.0
    np.testing.assert_array_equal(times.latencies_s, [2.0, 2.0])
    np.testing.assert_array_equal(times.queued_s, [0.0, 0.0])
    assert times.first_s == 1.0
