"""Explanations from scripted workers and synthetic records: no process is started and no clock is read."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flashperf.attribution import SwitchLevels, call_counts
from flashperf.errors import UserError
from flashperf.explain import planned, replay
from flashperf.explain.analysis import analyse
from flashperf.explain.packed import pack_counts
from flashperf.explain.planned import Planner
from flashperf.explain.run import Phases
from flashperf.explain.session import Deadline, Session, measure_advice
from flashperf.pipeline.config import PRESETS
from flashperf.pipeline.scenario import custom_scenario
from flashperf.pipeline.switches import STANDARD, parse_levels
from flashperf.progress import NullProgress
from flashperf.store import RecordWriter, read_records

SWITCHES = [
    SwitchLevels("precision", "f32", "mixed"),
    SwitchLevels("span", "full", "full", active=False),
    SwitchLevels("fusion", "fused", "split"),
    SwitchLevels("tiling", "blocked", "bad_tile"),
]
#: Seconds that each active switch multiplies the time of a run with, and one interaction between the first two.
FACTORS, INTERACTION, BASE_S = (1.5, 0.9, 1.2), 1.1, 0.020


class Clock:
    """Monotonic seconds that move only when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Interrupt:
    """Ctrl-C after so many commands to all workers; never if None."""

    def __init__(self, after: int | None = None) -> None:
        self.left = math.inf if after is None else after

    def count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt


class ScriptedWorker:
    """Answers like a worker process whose runs take exactly what FACTORS say, times a little noise."""

    def __init__(self, number: int, clock: Clock, interrupt: Interrupt) -> None:
        self.number, self.clock, self.interrupt = number, clock, interrupt
        self.noise = np.random.default_rng(number)
        self.checked: list[int] = []
        self.bound: list[int] = []
        self.asked: list[str] = []

    def seconds(self, mask: int) -> float:
        active = [factor for bit, factor in enumerate(FACTORS) if mask >> bit & 1]
        both = INTERACTION if mask & 3 == 3 else 1.0
        return BASE_S * math.prod(active) * both * math.exp(0.002 * self.noise.standard_normal())

    def ask(self, command: str, timeout_s: float = 300.0, **arguments: Any) -> Any:
        self.asked.append(command)
        self.interrupt.count()
        if command != "group":
            return None
        runs = []
        for mask in arguments["masks"]:
            seconds = self.seconds(mask)
            self.clock.now += seconds
            runs.append({"seconds": seconds, "first_s": seconds / 4, "cpu_s": seconds, "stolen": 0})
        return {"runs": runs, "repeats": 0, "stolen": 0}

    def send(self, command: str, method: str, arguments: dict[str, Any]) -> None:
        assert command == "call"
        {"check": self.checked, "bind": self.bound}[method].extend(arguments["masks"])

    def receive(self, timeout_s: float = 300.0) -> Any:
        return None


class ScriptedPool:
    def __init__(self, clock: Clock, count: int = 8, interrupt_after: int | None = None) -> None:
        interrupt = Interrupt(interrupt_after)
        self.workers = [ScriptedWorker(n, clock, interrupt) for n in range(count)]


def make_session(tmp_path: Path, budget_s: float = 100.0) -> Session:
    clock = Clock()
    pool = ScriptedPool(clock)
    writer = RecordWriter(tmp_path / "record.jsonl")
    deadline = Deadline(budget_s, clock=clock)
    return Session(pool, SWITCHES, writer, NullProgress(), deadline, seed=1, verifies=True)  # type: ignore[arg-type]


def write_head(writer: RecordWriter) -> None:
    from flashperf import environment

    writer.write(
        "explain", seed=1, budget_s=100.0, subject="scripted", switches=SWITCHES, generated_tokens=32
    )
    writer.write("environment", environment=environment.capture())


def test_known_factors_come_back_as_shares_that_multiply_to_the_total(tmp_path: Path) -> None:
    session = make_session(tmp_path)
    write_head(session.writer)
    assert session.cycles(0, 1.0)
    assert session.cycles(1, 1.0)
    session.confirm(1.0)
    measure_advice(session, 0, 1.0)
    session.writer.write("end", stopped="budget", seconds=session.deadline.elapsed_s)
    found = replay(tmp_path / "record.jsonl")
    shares = {share.switch: share for share in found.attribution.shares}
    assert math.isclose(
        math.prod(s.share.value for s in shares.values()), found.attribution.total.value, rel_tol=1e-9
    )
    half = math.sqrt(INTERACTION)
    assert shares["precision"].share.value == pytest.approx(1.5 * half, rel=0.01)
    assert shares["fusion"].share.value == pytest.approx(0.9 * half, rel=0.01)
    assert shares["tiling"].share.value == pytest.approx(1.2, rel=0.01)
    assert shares["span"].share.value == 1.0
    assert not shares["span"].active
    assert found.attribution.interactions[0].confirmed
    assert set(found.attribution.interactions[0].switches) == {"precision", "fusion"}
    assert found.advice is not None
    assert found.advice.switch == "precision"
    assert found.advice.ratio_to_flash.value == pytest.approx(1 / (1.5 * INTERACTION), rel=0.01)
    assert not found.partial


def test_metrics_are_those_of_the_runs(tmp_path: Path) -> None:
    session = make_session(tmp_path)
    write_head(session.writer)
    session.cycles(0, 1.0)
    for mask, peak in ((0, 50e6), (7, 40e6), (0, 52e6), (7, 42e6)):
        session.writer.write("probe", mask=mask, peak_bytes=peak)
    session.writer.write("end", stopped="budget", seconds=1.0)
    metrics = {metric.name: metric for metric in replay(tmp_path / "record.jsonl").metrics}
    latency = metrics["task latency"]
    assert latency.standard is not None
    assert latency.standard.value == pytest.approx(BASE_S, rel=0.01)
    first = metrics["time to first token"]
    assert first.flash is not None
    assert first.flash.value == pytest.approx(BASE_S * 1.5 * 0.9 * 1.2 * 1.1 / 4, rel=0.01)
    rate = metrics["throughput"]
    assert rate.standard is not None
    assert rate.standard.value == pytest.approx(32 / BASE_S, rel=0.01)
    memory = metrics["peak memory"]
    assert memory.standard is not None
    assert memory.standard.value == pytest.approx(51.0)
    assert memory.ratio is not None
    assert memory.ratio.value == pytest.approx(41 / 51)


def test_every_mixture_is_checked_once_before_it_is_timed(tmp_path: Path) -> None:
    session = make_session(tmp_path)
    session.cycles(0, 1.0)
    checked = [mask for worker in session.pool.workers for mask in worker.checked]  # type: ignore[attr-defined]
    timed = {mask for observation in session.observations for mask in observation.group.masks}
    assert sorted(checked) == sorted(timed)
    for worker in session.pool.workers:
        own = {m for o in session.observations if o.worker == worker.number for m in o.group.masks}
        assert set(worker.bound) == own  # type: ignore[attr-defined]


@pytest.mark.parametrize(("budget_s", "pairs"), [(1000.0, 13), (33.0, 10), (26.0, 6), (1.0, 5)])
def test_slow_runs_get_fewer_pairs_but_at_least_a_third(tmp_path: Path, budget_s: float, pairs: int) -> None:
    session = make_session(tmp_path, budget_s)
    session.switches = [SwitchLevels(f"s{n}", "off", "on") for n in range(9)]
    session.plan()
    assert session.pairs == pairs
    if budget_s > 30:
        assert session.cycles(0, 0.0)
        assert not session.attribution().notes  # the cycles count as whole
        assert session.deadline.elapsed_s < 0.6 * budget_s


def test_measuring_stops_at_a_whole_round_when_the_next_does_not_fit(tmp_path: Path) -> None:
    session = make_session(tmp_path, budget_s=1e9)
    assert session.cycles(0, 1.0)
    used = session.deadline.elapsed_s
    session.deadline.budget_s = used * 1.5
    runs = len(session.observations)
    assert not session.cycles(1, 0.0)
    assert len(session.observations) == runs, "a round that does not fit is not begun"


def test_a_budget_that_ends_inside_the_first_round_still_leaves_what_was_measured(tmp_path: Path) -> None:
    session = make_session(tmp_path, budget_s=1.0)
    assert not session.cycles(0, 0.0)
    assert session.observations
    lines = read_records(tmp_path / "record.jsonl").of("group")
    assert len(list(lines)) == len(session.observations)


class ScriptedPhases(Phases):
    """Phases with scripted workers, interrupted by Ctrl-C after so many commands."""

    def __init__(self, interrupt_after: int | None, **common: Any) -> None:
        super().__init__(SWITCHES, **common)
        self.interrupt_after = interrupt_after

    def describe(self) -> dict[str, Any]:
        return {"subject": "scripted", "switches": self.switches}

    def _measure_active(self) -> str:
        clock = Clock()
        pool = ScriptedPool(clock, interrupt_after=self.interrupt_after)
        session = Session(
            pool,  # type: ignore[arg-type]
            self.switches,
            self.writer,
            self.progress,
            Deadline(100.0, clock=clock),
            self.seed,
        )
        session.cycles(0, 0.0)
        return session.stopped


def common(tmp_path: Path) -> dict[str, Any]:
    return {"budget_s": 9.0, "seed": 0, "out": tmp_path, "progress": NullProgress(), "began": None}


def test_an_interrupt_keeps_what_was_measured_and_reports_it_as_partial(tmp_path: Path) -> None:
    found = ScriptedPhases(18, **common(tmp_path)).measure()
    assert found.partial
    assert found.attribution.stopped == "interrupted"
    assert 2 <= found.attribution.workers < 8
    assert replay(tmp_path / "record.jsonl") == found


def test_an_interrupt_before_anything_was_measured_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="too little was measured"):
        ScriptedPhases(2, **common(tmp_path)).measure()


def test_identical_variants_have_nothing_to_attribute(tmp_path: Path) -> None:
    phases = ScriptedPhases(None, **common(tmp_path))
    phases.switches = [SwitchLevels("precision", "f32", "f32", active=False)]
    found = phases.measure()
    assert found.attribution.total.value == 1.0
    assert any("same program" in note for note in found.attribution.notes)


@pytest.mark.parametrize("budget", [0.0, -1.0, math.nan, math.inf])
def test_a_budget_that_is_no_time_is_refused(tmp_path: Path, budget: float) -> None:
    with pytest.raises(UserError, match="budget must be a positive number"):
        ScriptedPhases(None, **{**common(tmp_path), "budget_s": budget})


def test_records_of_other_things_are_refused() -> None:
    with pytest.raises(UserError, match="not the record of an explain run"):
        analyse([{"kind": "header"}, {"kind": "group"}])
    with pytest.raises(UserError, match="not the record of an explain run"):
        analyse([])


TINY, SHORT = PRESETS["tiny"], custom_scenario((6, 3), steps=2)


def test_planning_marks_switches_that_change_nothing_as_inactive() -> None:
    switches = planned.find_active(Planner(TINY, SHORT), STANDARD, parse_levels("a"))
    assert {s.name for s in switches if not s.active} == {"span", "checkpoint"}
    assert not any(s.active for s in planned.find_active(Planner(TINY, SHORT), STANDARD, STANDARD))


def test_a_switch_that_only_matters_beside_another_is_active() -> None:
    # Under over-fusion the MLP ignores tiling, but attention's products don't: tiling stays active.
    flash = {**STANDARD, "fusion": "over", "tiling": "bad_tile"}
    assert {s.name for s in planned.find_active(Planner(TINY, SHORT), STANDARD, flash) if s.active} == {
        "fusion",
        "tiling",
    }


def test_covering_mixtures_hold_every_call_and_survive_the_record() -> None:
    planner = Planner(TINY, SHORT)
    switches = planned.find_active(planner, STANDARD, parse_levels("a"))
    counts = planned.count_all(planner, switches)
    assert len(counts) == 2 ** sum(switch.active for switch in switches)
    cover = counts.cover()
    assert len(cover) < 30
    assert set().union(*(counts.of(m) for m in cover)) == set(counts.calls)
    assert planned.mixture(switches, 0) == STANDARD
    assert planned.mixture(switches, len(counts) - 1) == parse_levels("a")


def measured_lines(tmp_path: Path) -> list[dict[str, Any]]:
    """The lines of a whole scripted record, without its header."""
    session = make_session(tmp_path)
    write_head(session.writer)
    session.cycles(0, 1.0)
    session.writer.write("end", stopped="budget", seconds=1.0)
    return list(read_records(tmp_path / "record.jsonl").lines)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("worker", None, "worker is None"),
        ("group", "trio", "kind 'trio'"),
        ("weight", -3, "weight -3"),
        ("runs", [], "mixtures, 0 runs"),
        ("runs", [{"seconds": "x", "cpu_s": 1.0}], "a run's seconds is 'x'"),
        ("runs", [{"seconds": math.nan, "cpu_s": 1.0}], "a run's seconds is nan"),
        ("runs", [{"seconds": 0.0, "cpu_s": 0.0}], "a run's seconds is 0.0"),
    ],
)
def test_a_damaged_group_is_named_and_not_used(tmp_path: Path, field: str, value: Any, message: str) -> None:
    lines = measured_lines(tmp_path)
    group = next(line for line in lines if line["kind"] == "group")
    group[field] = value
    with pytest.raises(UserError, match=message):
        analyse(lines)


@pytest.mark.parametrize("damage", [{"switches": 7}, {"switches": [1]}])
def test_other_damage_is_a_user_error_too(tmp_path: Path, damage: dict[str, Any]) -> None:
    lines = measured_lines(tmp_path)
    next(line for line in lines if line["kind"] == "explain").update(damage)
    with pytest.raises(UserError, match="damaged"):
        analyse(lines)


def test_a_record_without_its_closing_line_is_partial_and_says_why(tmp_path: Path) -> None:
    lines = [line for line in measured_lines(tmp_path) if line["kind"] != "end"]
    found = analyse(lines)
    assert found.partial
    assert "no closing line" in found.attribution.stopped


def test_isolated_times_of_some_workers_give_shares_and_say_why_nothing_is_predicted(tmp_path: Path) -> None:
    lines = measured_lines(tmp_path)
    counts = {mask: {"call": 1 + mask} for mask in range(8)}
    lines.insert(-1, {"kind": "counts", **pack_counts(call_counts(counts, 3))})
    lines.insert(-1, {"kind": "isolated", "worker": 3, "times": {"call": {"warm": [1e-4], "cold": [1e-4]}}})
    found = analyse(lines).attribution
    assert found.workers == 8
    assert found.shares[0].predicted is None
    assert any("no prediction: the budget ended" in note for note in found.notes)


def test_counts_that_are_cut_off_are_damage(tmp_path: Path) -> None:
    lines = measured_lines(tmp_path)
    counts = pack_counts(call_counts({mask: {"call": 1} for mask in range(8)}, 3))
    counts["counts_zlib"] = counts["counts_zlib"][:-10]
    lines.insert(-1, {"kind": "counts", **counts})
    with pytest.raises(UserError, match="damaged"):
        analyse(lines)


def test_isolated_times_that_cannot_be_cost_the_prediction_only(tmp_path: Path) -> None:
    lines = measured_lines(tmp_path)
    counts = {mask: {"call": 1, "slow": int(mask == 0)} for mask in range(8)}
    lines.insert(-1, {"kind": "counts", **pack_counts(call_counts(counts, 3))})
    for worker in range(8):
        times = {key: {"warm": [1e-4], "cold": [1.0]} for key in ("call", "slow")}
        lines.insert(-1, {"kind": "isolated", "worker": worker, "times": times})
    found = analyse(lines).attribution
    assert found.shares[0].predicted is not None
    assert found.shares[0].predicted_cold is None
    assert any("no prediction from cold caches" in note for note in found.notes)


def test_a_failure_after_measuring_is_reported_as_partial_with_its_reason(tmp_path: Path) -> None:
    class Failing(ScriptedPhases):
        def _measure_active(self) -> str:
            super()._measure_active()
            raise RuntimeError("worker 7 was ended by signal 9")

    found = Failing(None, **common(tmp_path)).measure()
    assert found.partial
    assert found.attribution.stopped == "failed: worker 7 was ended by signal 9"


def test_a_negative_seed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="seed must not be negative"):
        ScriptedPhases(None, **{**common(tmp_path), "seed": -1})
