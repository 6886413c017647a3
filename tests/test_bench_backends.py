"""``flashperf bench MECHANISM``: one table over backends, what is missing with its reason, nothing lost."""

from __future__ import annotations

import dataclasses
import io
import json
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from rich.console import Console

from flashperf import cli, registry
from flashperf.check import check_output
from flashperf.commands import bench_backends
from flashperf.measure import measure_pair
from flashperf.problem import WrongResult
from flashperf.records import Case, Check, Measurement, Mechanism, Tolerance
from flashperf.store import from_json, to_json

SIZE = "n=4096-chunk=1024"
RIGHT = check_output("y", np.ones(3, np.float32), "f32", np.ones(3), Tolerance(0.1, 0.1, "exact"))


def measurement(case: Case, time_s: float) -> Measurement:
    cost = registry.mechanism(case.mechanism).cost(case)
    timer = "cuda events" if case.backend != "cpu" else "perf_counter_ns"
    return Measurement(case, RIGHT, cost, (time_s,) * 4, (0.0,) * 4, 0.1, 1, timer, "warm")


@pytest.fixture
def everything_runs(monkeypatch: pytest.MonkeyPatch) -> list[Case]:
    """Every backend is there and no case is really measured: a case takes 2 us, its standard 1 us."""
    seen: list[Case] = []

    def fake_pair(
        mechanism: Mechanism, standard: Case, case: Case, budget_s: float, rng: Any, **_: Any
    ) -> tuple[Measurement, Measurement, list[float]]:
        seen.append(case)
        ratio = 1.0 if case == standard else 2.0
        return measurement(standard, 1e-6), measurement(case, ratio * 1e-6), [float(np.log(ratio))] * 3

    monkeypatch.setattr(bench_backends, "measure_pair", fake_pair)
    monkeypatch.setattr(bench_backends.registry, "why_not", lambda mechanism, case: "")
    return seen


def run(width: int = 160, **options: Any) -> tuple[int, str]:
    stream = io.StringIO()
    console = Console(file=stream, width=width)
    code = bench_backends.run("cache", "cpu,cuda,triton", size=SIZE, console=console, **options)
    return code, stream.getvalue()


def test_three_backends_stand_side_by_side(everything_runs: list[Case]) -> None:
    code, text = run()
    assert code == 0
    header = next(line for line in text.splitlines() if line.startswith("variant"))
    assert header.split("  ")[0] == "variant"
    assert [word for word in header.split() if word in ("cpu", "cuda", "triton")] == ["cpu", "cuda", "triton"]
    assert header.count("to standard") == header.count("error") == 3
    row = next(line for line in text.splitlines() if line.startswith("whole"))
    assert row.count("2.00 µs") == 3
    assert row.count("2.00x [2.00 2.00]") == 3
    assert row.count("0.0e+00") == 3
    assert "cpu by perf_counter_ns, cuda by cuda events, triton by cuda events" in " ".join(text.split())
    assert {case.backend for case in everything_runs} == {"cpu", "cuda", "triton"}


def test_a_narrow_terminal_gets_lines_in_a_cell(everything_runs: list[Case]) -> None:
    text = run(width=80)[1]
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("error 0.0e+00") == 6
    assert text.count("standard") >= 3


def test_what_cannot_run_says_why_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def why_not(mechanism: Mechanism, case: Case) -> str:
        return "" if case.backend == "cpu" else "no NVIDIA driver"

    monkeypatch.setattr(bench_backends.registry, "why_not", why_not)
    code, text = run(budget_s=0.1)
    assert code == 0
    assert text.count("not here") == 4
    assert text.count("no NVIDIA driver") == 2
    assert "triton: no NVIDIA driver\n" in text
    assert "error" in text


def test_nothing_measured_is_no_success(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench_backends.registry, "why_not", lambda mechanism, case: "no NVIDIA driver")
    assert cli.main(["bench", "cache", "--backend", "cuda", "--size", SIZE]) == 2
    said = capsys.readouterr()
    assert "no NVIDIA driver" in said.out
    assert "nothing of cache can run here on cuda" in said.err


def test_a_reason_of_some_variants_names_them() -> None:
    cases = [
        Case.of("cache", variant, "cuda", "f32", {"n": 4, "chunk": 4}) for variant in ("whole", "chunked")
    ]
    cells = [
        bench_backends.Cell(cases[0], cases[1], reason="too large"),
        bench_backends.Cell(cases[1], cases[1], measurement(cases[1], 1e-6)),
    ]
    assert list(bench_backends.notes(cells))[-1] == "cuda: too large (whole)"


def test_winner_and_losers_of_a_tuner_are_told() -> None:
    case = Case.of("tiling", "autotuned", "triton", "f32", {"m": 4, "k": 4, "n": 4})
    details = {"autotuned": "wide", "tried_s": {"narrow": 3e-6, "wide": 1e-6, "one stage": 2e-6}}
    cell = bench_backends.Cell(case, case, dataclasses.replace(measurement(case, 1e-6), details=details))
    told = "autotuned on triton took wide (1.00 µs); lost: one stage: 2.00 µs; narrow: 3.00 µs"
    assert told in list(bench_backends.notes([cell]))
    assert from_json(Measurement, to_json(cell.measurement)).details == details


def test_a_wrong_kernel_is_not_timed_and_fails(
    everything_runs: list[Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_pair = bench_backends.measure_pair
    wrong = Check(False, 1.0, 1.0, 0.0, (3,), 0.1, "y[3] is off")

    def pair(mechanism: Mechanism, standard: Case, case: Case, *rest: Any, **options: Any) -> Any:
        if case.backend == "triton" and case.variant == "whole":
            raise WrongResult(case.id, wrong)
        return fake_pair(mechanism, standard, case, *rest, **options)

    monkeypatch.setattr(bench_backends, "measure_pair", pair)
    code, text = run()
    assert code == 1
    assert "triton: y[3] is off (whole)" in text
    assert "wrong" in text


def test_ctrl_c_prints_and_keeps_what_was_measured(
    everything_runs: list[Case], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_pair = bench_backends.measure_pair

    def pair(*arguments: Any, **options: Any) -> Any:
        if len(everything_runs) == 2:
            raise KeyboardInterrupt
        return fake_pair(*arguments, **options)

    monkeypatch.setattr(bench_backends, "measure_pair", pair)
    stream, record = io.StringIO(), tmp_path / "run.jsonl"
    with pytest.raises(KeyboardInterrupt):
        bench_backends.run(
            "cache", "cpu,cuda", size=SIZE, record=record, console=Console(file=stream, width=160)
        )
    assert "chunked" in stream.getvalue()
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    assert [line["kind"] for line in lines] == ["header", "measurement", "measurement"]
    assert lines[1]["measurement"]["samples_s"] == [1e-6] * 4


def test_a_real_run_on_the_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "cache", "--backend", "cpu", "--size", SIZE, "--budget", "0.1"]) == 0
    text = capsys.readouterr().out
    assert "chunked" in text
    assert "x [" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tilling"], "did you mean tiling"),
        (["tiling", "--backend", "cudaa"], "did you mean cuda"),
        (["tiling", "--size", "m"], "a size is written as"),
        (["tiling", "--size", "n=4"], "sizes of tiling are m, k, n, got n"),
        (["tiling", "--size", "m=x-k=5-n=5"], "size m of tiling is a whole number from 1 on, not 'x'"),
        (["tiling", "--backend", "cuda", "--size", "m=0-k=5-n=5"], "a whole number from 1 on, not 0"),
        (["fusion", "--size", "op=softmx-rows=4-cols=4"], "did you mean softmax"),
        (["tiling", "--dtype", "f17"], "unknown dtype of tiling"),
        (["checkpoint", "--backend", "triton"], "checkpoint has no variant for triton"),
        (["tiling", "more"], "takes no further arguments: more"),
        (["--backend", "cpu"], "need a mechanism"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["bench", *arguments]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert not captured.out


def test_what_a_call_says_of_itself_is_on_its_measurement() -> None:
    mechanism = registry.mechanism("cache")
    case = Case.of("cache", "whole", "cpu", "f32", {"n": 64, "chunk": 64})

    def bind(*arguments: Any) -> Any:
        call = mechanism.bind["cpu"](*arguments)

        class Told:
            details: ClassVar[dict[str, str]] = {"autotuned": "wide"}

            def __call__(self) -> None:
                call()

        return Told()

    told = dataclasses.replace(mechanism, bind={**mechanism.bind, "cpu": bind})
    _, measured, _ = measure_pair(told, case, case, 0.01, np.random.default_rng(0))
    assert measured.details == {"autotuned": "wide"}
