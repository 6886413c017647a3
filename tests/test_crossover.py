"""Crossovers from request to rule: driver, record, text, command; no process is started."""

from __future__ import annotations

import dataclasses
import itertools
import math
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sample_parts

from flashperf import cli
from flashperf.blocks import Block
from flashperf.crossover import driver, replay
from flashperf.crossover.driver import Session
from flashperf.crossover.finder import Crossing, Finding, OutOfTime, ScanPoint, find
from flashperf.crossover.journal import Journal, Plan
from flashperf.crossover.pair import KEPT_SIZES, Pairs
from flashperf.crossover.result import CrossoverResult, SideTimes, advice_words
from flashperf.errors import UserError
from flashperf.plots.crossover import crossover_picture, crossover_svg
from flashperf.progress import NullProgress
from flashperf.records import Interval
from flashperf.store import RecordError, RecordWriter, to_json

ORDER = "ABBABAAB"


class FakeWorker:
    """Costs 1 µs + 10 ns a size on side A, 3 µs + 2 ns on side B, on a clock that it moves; 1 % of noise."""

    def __init__(self, number: int, clock: list[float], prepare_s: float = 0.0) -> None:
        self._rng, self._clock, self._prepare_s = np.random.default_rng(number), clock, prepare_s
        self.prepared: list[tuple[int, bool]] = []

    def call(self, method: str, **arguments: Any) -> Any:
        if method == "prepare_size":
            self.prepared.append((arguments["size"], arguments["check"]))
            self._clock[0] += self._prepare_s * arguments["size"]
            return None
        size = arguments["size"]
        costs = {"A": 1e-6 + 10e-9 * size, "B": 3e-6 + 2e-9 * size}
        times = [costs[side] * math.exp(0.01 * self._rng.standard_normal()) for side in ORDER]
        self._clock[0] += sum(times)
        return to_json(Block(ORDER, tuple(times), tuple(times)))


def session(
    budget_s: float = 60.0, prepare_s: float = 0.0, writer: RecordWriter | None = None
) -> tuple[Session, list[FakeWorker]]:
    clock = [0.0]
    workers = [FakeWorker(n, clock, prepare_s) for n in range(8)]
    made = Session(workers, budget_s, 0, writer, NullProgress(), now=lambda: clock[0])  # type: ignore[arg-type]
    return made, workers


CROSSES_AT = 250  # 2 µs / 8 ns


def result_of(finding: Finding, names: tuple[str, str] = ("fused", "split")) -> CrossoverResult:
    times = tuple(SideTimes(n, 1e-6 + 10e-9 * n, 3e-6 + 2e-9 * n) for n in (1, 10, 100, 1000))
    return CrossoverResult(
        names, "rows", "toy cpu f32", (1, 1000), finding, times, sample_parts.QUIET, 12.0, ("a note",)
    )


def scanned(signs: Sequence[int]) -> tuple[ScanPoint, ...]:
    sizes = (1, 10, 100, 1000)
    return tuple(ScanPoint(n, Interval(2.0**s, 1.9**s, 2.1**s), s) for n, s in zip(sizes, signs, strict=True))


ONE = Finding(
    "crossings", "", (Crossing(190, 240, "b", True, 212.4, 0.4),), None, scanned((-1, -1, -1, 1)), 8
)
TWICE = Finding(
    "crossings",
    "",
    (Crossing(8, 11, "a", True, 9.6, 0.4), Crossing(300, 900, "b", False)),
    None,
    scanned((1, -1, -1, 1)),
    8,
)
NONE = Finding("none", "b", (), None, scanned((-1, -1, -1, -1)), 8)
UNKNOWN = Finding("unresolved", "a", (), (10, 1000), scanned((1, 1, 0, 0)), 8)


def test_the_driver_finds_where_two_costs_cross_and_checks_in_one_process() -> None:
    made, workers = session()
    finding = find(made.measure, 1, 4096)
    (crossing,) = finding.crossings
    assert crossing.resolved
    assert crossing.low <= CROSSES_AT <= crossing.high
    assert crossing.high / crossing.low < 1.1
    assert crossing.below == "a"
    assert all(check for _, check in workers[0].prepared)
    assert not any(check for worker in workers[1:] for _, check in worker.prepared)
    times = {point.size: point for point in made.journal.times()}
    assert times[1].a_s == pytest.approx(1.01e-6, rel=0.02)
    assert times[1].b_s == pytest.approx(3.002e-6, rel=0.02)


def test_a_scan_stops_where_the_next_size_would_take_too_long() -> None:
    made, _ = session(budget_s=10.0, prepare_s=0.01)
    finding = find(made.measure, 1, 4096)
    assert 4 < finding.scan[-1].size < 512
    assert made.notes == [f"sizes above {finding.scan[-1].size} were not measured: no time for them"]
    assert finding.kind in ("none", "unresolved")


def test_without_time_for_three_sizes_nothing_is_claimed() -> None:
    made, _ = session()
    made._scan = lambda sizes, blocks: None  # type: ignore[method-assign]
    with pytest.raises(OutOfTime):
        made.measure([1, 2, 4, 8], 2)


def test_a_crossing_without_time_to_refine_is_a_bracket() -> None:
    made, _ = session()
    measure = made.measure

    def late(sizes: Sequence[int], blocks: int) -> np.ndarray:
        values = measure(sizes, blocks)
        made.budget_s = -1.0
        return values

    (crossing,) = find(late, 1, 4096).crossings
    assert not crossing.resolved
    assert crossing.low < CROSSES_AT < crossing.high
    assert made.notes == ["no time was left to refine a crossing"]


def test_a_record_gives_the_same_finding(tmp_path: Path) -> None:
    path = record(tmp_path / "a.jsonl")
    plan, again = replay(path)
    assert plan.names == ("a", "b")
    assert again.finding == find(session()[0].measure, 1, 4096)
    assert (again.notes, again.seconds) == (("noted",), 3.0)
    assert [t.size for t in again.times] == sorted({t.size for t in again.times})


def record(path: Path, end: bool = True) -> Path:
    with RecordWriter(path) as writer:
        plan = Plan(("a", "b"), "n", "toy", 1, 4096)
        writer.write("crossover", plan=plan, workers=8, seed=0, environment=sample_parts.QUIET)
        find(session(writer=writer)[0].measure, 1, 4096)
        if end:
            writer.write("end", seconds=3.0, notes=("noted",))
    return path


def test_a_cut_off_record_gives_what_it_holds(tmp_path: Path) -> None:
    path = record(tmp_path / "a.jsonl", end=False)
    lines = path.read_text().splitlines(keepends=True)
    stages = [n for n, line in enumerate(lines) if '"kind": "stage"' in line]
    path.write_text("".join(lines[: stages[1] + 5]))
    _, again = replay(path)
    assert again.notes == ("the run was interrupted",)
    assert [c.resolved for c in again.finding.crossings] == [False]
    path.write_text("".join(lines[: stages[0] + 20]))
    with pytest.raises(RecordError, match="before three sizes"):
        replay(path)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"kind": "crossover"', '"kind": "other"', "no record of a crossover"),
        ('"stage": 2, "worker"', '"stage": 9, "worker"', "a block of stage 9"),
        ('"sizes": [1, 2,', '"sizes": [1, 3,', "other sizes than this version"),
    ],
)
def test_a_damaged_record_is_one_clear_error(tmp_path: Path, old: str, new: str, said: str) -> None:
    path = record(tmp_path / "a.jsonl")
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(RecordError, match=said):
        replay(path)


@pytest.mark.parametrize(
    ("finding", "answer", "use", "rule"),
    [
        (
            ONE,
            "fused and split cross at rows = 212 (95 % interval 190 to 240)",
            "split below 190, fused above 240, either between",
            "variant = 'split' if rows < 212 else 'fused'",
        ),
        (
            TWICE,
            "fused and split cross twice: at rows = 9.6 (95 % interval 8 to 11); between rows = 300 and 900",
            "fused below 8, split from 11 to 300, fused above 900, either between",
            "variant = 'fused' if rows < 10 else 'split' if rows < 520 else 'fused'",
        ),
        (
            NONE,
            "no crossing: split is faster than fused at all of rows = 1 to 1000, by a factor of 2 to 2",
            "split everywhere",
            "variant = 'split'",
        ),
        (
            UNKNOWN,
            "can't tell which is faster between rows = 10 and 1000; elsewhere fused is faster",
            "no rule",
            "",
        ),
    ],
)
def test_every_answer_has_its_words_and_its_rule(finding: Finding, answer: str, use: str, rule: str) -> None:
    result = result_of(finding)
    assert result.answer == answer
    assert advice_words(result) == use
    assert result.rule == rule
    assert ("use " + use in str(result)) == bool(rule)
    assert "a note" in str(result)
    assert "fused: about 1.00 µs + 10.0 ns per row (a straight line is off by 0 %)" in str(result)


def test_everywhere_is_not_said_of_a_range_that_was_cut() -> None:
    assert advice_words(dataclasses.replace(result_of(NONE), asked=(1, 4096))) == "split up to 1000"


def test_the_rule_is_python_that_chooses_what_the_parts_say() -> None:
    for finding in (ONE, TWICE, NONE):
        result = result_of(finding)
        for rows in (1, 9, 10, 100, 211, 212, 600, 1000):
            chosen: dict[str, Any] = {}
            exec(result.rule, {"rows": rows}, chosen)
            assert chosen["variant"] == [part.use for part in result.parts if part.first <= rows][-1]


def test_the_rule_is_cpp_that_chooses_what_the_parts_say(tmp_path: Path) -> None:
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    sizes = (1, 9, 10, 100, 211, 212, 600, 1000)
    results = [result_of(finding) for finding in (ONE, TWICE, NONE)]
    loop = "for (int rows : {%s}) { %s (void)rows; std::puts(variant); }"
    body = "\n".join(loop % (", ".join(map(str, sizes)), result.rule_cpp) for result in results)
    source = tmp_path / "rule.cpp"
    source.write_text(f"#include <cstdio>\n#include <initializer_list>\nint main() {{\n{body}\n}}\n")
    subprocess.run([compiler, "-Wall", "-Werror", str(source), "-o", str(tmp_path / "rule")], check=True)
    said = subprocess.run([str(tmp_path / "rule")], check=True, capture_output=True, text=True).stdout
    wanted = [
        [part.use for part in result.parts if part.first <= rows][-1] for result in results for rows in sizes
    ]
    assert said.split() == wanted


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "name a mechanism, or a record with --from"),
        (["nonsense"], "unknown mechanism 'nonsense'"),
        (["fusion", "--axis", "depth"], "unknown axis of fusion 'depth'"),
        (["fusion", "--range", "9"], "--range is LOW:HIGH, such as 1:4096, not '9'"),
        (["fusion", "--range", "9:4"], "not 9:4"),
        (["fusion", "--range", "0:4"], "not 0:4"),
        (["fusion", "--between", "fused", "spilt"], "unknown variant of fusion 'spilt'"),
        (["fusion", "--between", "fused", "fused"], "fused can't cross itself"),
        (["fusion", "--size", "colour=3"], "unknown size of fusion 'colour'"),
        (["fusion", "--size", "cols"], "--size is NAME=VALUE"),
        (["fusion", "--dtype", "f99"], "unknown dtype of fusion 'f99'"),
        (["fusion", "--backend", "cuda"], "on the cpu backend so far, not on cuda"),
        (["fusion", "--budget", "0"], "the budget is 0"),
        (["fusion", "--size", "cols=x"], "cols of fusion is a whole number, not 'x'"),
        (["fusion", "--range", "1:99999999999999999999"], "a size is at most 9,007,199,254,740,992"),
        (["--from", "missing.jsonl"], "can't read missing.jsonl"),
    ],
)
def test_mistakes_are_one_line_and_nothing_is_measured(
    arguments: list[str], said: str, capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["crossover", *arguments]) == 2
    printed = capsys.readouterr()
    assert said in printed.err
    assert printed.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_the_command_prints_and_draws_a_record(tmp_path: Path, capsys: Any) -> None:
    path = record(tmp_path / "a.jsonl")
    assert cli.main(["crossover", "--from", str(path), "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert "toy: a and b cross at n = 2" in said
    assert "in code: variant = 'a' if n < 2" in said
    assert {file.name for file in (tmp_path / "out").iterdir()} == {"crossover.svg", "crossover.png"}
    assert cli.main(["crossover", "--from", str(path), "--json"]) == 0
    assert '"rule": "variant = ' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "measure", "kind"),
    [
        (["crossover", "fusion"], "flashperf.crossover.crossover_of", "block"),
        (["roofline", "fusion"], "flashperf.roofs.suite.measure_suite", "point"),
    ],
)
@pytest.mark.parametrize(
    ("error", "code"), [(KeyboardInterrupt(), 130), (RuntimeError("worker 3 died"), 1), (UserError("no"), 2)]
)
def test_what_was_measured_before_an_error_is_named(
    command: list[str],
    measure: str,
    kind: str,
    error: BaseException,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
    tmp_path: Path,
) -> None:
    def breaks(*_: Any, record: Path, **__: Any) -> None:
        with RecordWriter(record) as writer:
            writer.write(kind, a=1)
        raise error

    monkeypatch.setattr(measure, breaks)
    monkeypatch.setattr("flashperf.roofs.roofs_for", lambda *_: (None, tmp_path, False))
    assert cli.main([*command, "--out", str(tmp_path / "out"), "--quiet"]) == code
    said = capsys.readouterr().err
    assert f"; what was measured is kept: flashperf {command[0]} --from {tmp_path}" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("finding", [ONE, TWICE, NONE, UNKNOWN])
def test_pictures_are_the_same_byte_for_byte_and_described(finding: Finding, tmp_path: Path) -> None:
    result = result_of(finding)
    first = crossover_picture(result, tmp_path / "a")
    for one, other in zip(first, crossover_picture(result, tmp_path / "b"), strict=True):
        assert one.read_bytes() == other.read_bytes()
    svg = crossover_svg(result)
    assert "fused is faster" in svg
    assert "<title>split against fused, by rows</title>" in svg
    assert result.answer.split(" (")[0].split(";")[0] in svg.replace("&apos;", "'").replace("&#x27;", "'")


def test_one_size_has_no_fitted_cost() -> None:
    result = result_of(NONE)
    assert result.fits is not None
    alone = CrossoverResult(("a", "b"), "n", "toy", (1, 2), NONE, result.times[:1], sample_parts.BUSY, 1.0)
    assert alone.fits is None
    assert "the machine is busy: load 3.4" in str(alone)


def test_the_time_of_the_next_size_is_read_off_the_last_two() -> None:
    assert driver._next_s([1], []) == 0
    assert driver._next_s([1, 2], [0.5]) == 0.5
    assert driver._next_s([10, 20, 40], [1.0, 2.0]) == pytest.approx(4.0)
    assert driver._next_s([10, 20, 40], [2.0, 1.0]) == pytest.approx(1.0)


def test_all_sizes_of_a_refinement_stay_bound_also_those_of_the_scan() -> None:
    block = Block(ORDER, (1.0,) * 8, (1.0,) * 8)
    made: list[tuple[int, bool]] = []

    class Always:
        def block(self, seed: int) -> Block:
            return block

    def make(size: int, check: bool) -> Always:
        made.append((size, check))
        return Always()

    pairs = Pairs(make)
    for size in (1, 2, 4, 8, 16, 32, 64, 128):
        pairs.prepare_size(size, True)
    window = [3, 2, 5, 6, 1, 7, 9]
    assert len(window) < KEPT_SIZES
    for size in window:
        pairs.prepare_size(size, True)
    assert [pairs.block_at(size, 0)["order"] for size in window] == [ORDER] * 7
    assert len(pairs._bound) == KEPT_SIZES


def test_a_journal_stops_at_the_first_gap() -> None:
    journal = Journal([{}], [[1, 2, 4]])
    block = Block(ORDER, (1.0,) * 8, (1.0,) * 8)
    for worker, size in itertools.product(range(2), (1, 4)):
        journal.stages[0][worker, size] = [block, block]
    assert journal.log_ratios(0, 2, 2).shape == (2, 1, 2)
    assert journal.log_ratios(0, 3, 2).shape == (2, 0, 3)
