"""Double blocks on a scripted clock: balanced orders, lead-in calls, repeated pairs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from scripted import ScriptedProbe

from flashperf.blocks import LARGEST_SWEEP_BYTES, MAX_REPEATED_PAIRS, Block, BlockRunner, CacheSweep
from flashperf.timers import ScriptedClock


def runner(clock: ScriptedClock, log: list[str], seed: int, **options: object) -> BlockRunner:
    """A runner of two calls that log who was built and who ran."""

    def build(name: str) -> Callable[[], Callable[[], None]]:
        def fresh() -> Callable[[], None]:
            log.append(f"build {name}")

            def call() -> None:
                log.append(name)
                clock.advance(0.01 if name == "A" else 0.02)

            return call

        return fresh

    rng = np.random.default_rng(seed)
    return BlockRunner((build("A"), build("B")), (1, 1), rng, clock=clock, **options)  # type: ignore[arg-type]


def test_every_sample_has_a_lead_in_of_its_own_side() -> None:
    clock, log = ScriptedClock(), []
    block = runner(clock, log, seed=3).run()
    calls = log[2:]
    assert "".join(calls[0::2]) == "".join(calls[1::2]) == block.order
    assert block.log_ratio == pytest.approx(np.log(2))
    assert [s.wall_s for s in block.of("A")] == pytest.approx([0.01] * 4)
    assert [s.cpu_s for s in block.of("B")] == pytest.approx([0.02] * 4)


def test_order_and_first_builder_are_balanced() -> None:
    clock, orders, first = ScriptedClock(), Counter(), Counter()
    log: list[str] = []
    blocks = runner(clock, log, seed=5)
    for _ in range(200):
        log.clear()
        orders[blocks.run().order] += 1
        first[log[0]] += 1
        assert sorted(log[:2]) == ["build A", "build B"]
    assert set(orders) == {"ABBABAAB", "BAABABBA"}
    assert 70 < orders["ABBABAAB"] < 130
    assert 70 < first["build A"] < 130


def test_a_sweep_takes_the_place_of_the_lead_in() -> None:
    clock, log = ScriptedClock(), []
    block = runner(clock, log, seed=3, sweep=lambda: log.append("sweep")).run()
    assert log[2::2] == ["sweep"] * 8
    assert "".join(log[3::2]) == block.order


def test_a_disturbed_sample_is_repeated_with_its_pair() -> None:
    clock, log = ScriptedClock(), []
    block = runner(clock, log, seed=3, probe=ScriptedProbe({3})).run()  # the end of the second sample
    ran = "".join(log[3::2])
    assert ran == block.order[:2] + block.order
    assert (block.repeated, block.kept) == (1, 0)


def test_where_everything_is_disturbed_samples_are_kept_and_counted() -> None:
    clock, log = ScriptedClock(), []
    block = runner(clock, log, seed=3, probe=ScriptedProbe(set(range(1000)))).run()
    assert (block.repeated, block.kept) == (MAX_REPEATED_PAIRS, 8)
    assert len(block.wall_s) == 8


def test_a_block_is_reduced_by_side() -> None:
    block = Block("ABBABAAB", (1.0, 2.0, 2.0, 1.0, 2.0, 1.0, 1.0, 2.0), (0.0,) * 8)
    assert block.log_ratio == pytest.approx(np.log(2))


def test_a_sweep_says_what_it_can_not_reach() -> None:
    sweep = CacheSweep(1 << 20)
    sweep()
    assert sweep.state == "cold"
    assert CacheSweep(LARGEST_SWEEP_BYTES).state == f"cold-{LARGEST_SWEEP_BYTES >> 20}MiB"
