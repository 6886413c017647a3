"""Files of other tools, written by them (nvbench's by its documentation): read, compared, and never over-read."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from flashperf.cli import main
from flashperf.gate.readers import read_run

FOLDER = Path(__file__).parent / "foreign"
HYPERFINE = FOLDER / "hyperfine.json"


@pytest.mark.parametrize(
    "file, tool, name, processes, samples",
    [
        ("pytest_benchmark.json", "pytest-benchmark", "test_pb.py::test_product", 1, None),
        ("pyperf.json", "pyperf", "product", 4, 8),
        ("google_benchmark.json", "google-benchmark", "product_bench/min_time:0.020/repeats:5", 1, 5),
        ("nvbench.json", "nvbench", "copy Device=0 N=2^20", 1, 16),
        ("hyperfine.json", "hyperfine", "true", 10, 10),
    ],
)
def test_samples_and_processes_of_each_tool(
    file: str, tool: str, name: str, processes: int, samples: int | None
) -> None:
    run = read_run(FOLDER / file)
    bench = run.benches[name]
    assert (run.tool, len(bench.samples_s), bench.problem) == (tool, processes, "")
    total = sum(len(one) for one in bench.samples_s)
    assert total == samples if samples else total >= 20
    assert bench.median_s is not None
    assert 1e-6 < bench.median_s < 0.1  # seconds, whatever the file's unit


@pytest.mark.parametrize(
    "file, name, says",
    [
        ("pytest_benchmark_summary.json", "test_pb.py::test_product", "--benchmark-save-data"),
        ("google_benchmark_aggregates.json", "product_bench/min_time:0.020/repeats:5", "aggregates_only"),
        ("nvbench.json", "copy Device=0 N=2^24", "--jsonbin"),
    ],
)
def test_a_summary_says_what_cannot_be_tested(file: str, name: str, says: str) -> None:
    bench = read_run(FOLDER / file).benches[name]
    assert says in bench.problem
    assert bench.median_s == bench.summary_s != 0


def test_what_a_tool_says_went_wrong_is_kept() -> None:
    assert read_run(FOLDER / "google_benchmark.json").benches["broken"].failed
    assert "out of memory" in read_run(FOLDER / "nvbench.json").benches["copy Device=0 N=2^40"].problem


def test_three_runs_of_hyperfine_cannot_tell(capsys: pytest.CaptureFixture[str]) -> None:
    three = str(FOLDER / "hyperfine_three_runs.json")
    assert main(["compare", three, three]) == 0
    out = capsys.readouterr().out
    assert "can't tell" in out
    assert "3 processes, at least 6 are needed" in out
    assert main(["compare", three, three, "--fail-on", "cant-tell"]) == 11


def changed(tmp_path: Path, factor: float, only: str = "") -> str:
    data: Any = json.loads(HYPERFINE.read_text())
    for result in data["results"]:
        steady = [0.01 * (1 + 0.001 * n) for n in range(10)]
        scale = factor if only in result["command"] else 1.0
        result["times"] = [t * scale for t in steady]
    path = tmp_path / f"x{factor}{only}.json"
    path.write_text(json.dumps(data))
    return str(path)


def test_verdict_exit_code_markdown_and_json_of_two_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, now = changed(tmp_path, 1.0), changed(tmp_path, 1.5, "sleep")
    target = tmp_path / "out.md"
    assert main(["compare", before, now, "--run-sd", "1%", "--markdown", str(target)]) == 10
    out = capsys.readouterr().out
    assert "slower than 5 %  sleep 0.01  +50.0 %" in out
    assert "within 5 %       true        +0.0 %" in out
    text = target.read_text()
    assert text.startswith("### Benchmarks: of 2 benches 1 are no slower; 1 slower")
    assert "| sleep 0.01 | slower than 5 % | +50.0 %" in text
    assert main(["compare", before, now, "--run-sd", "1%", "--json", "-k", "true"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["passed"]
    assert [o["name"] for o in data["outcomes"]] == ["true"]
    assert data["outcomes"][0]["verdict"]["ratio"]["confidence"] == 0.95


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["nothing.json", str(HYPERFINE)], "can't read nothing.json"),
        ([str(HYPERFINE), "main"], "one is a file, the other a revision"),
        ([str(HYPERFINE)], "one is a file, the other a revision"),
        ([str(HYPERFINE), str(HYPERFINE), "--gate", "0"], "percentage above 0"),
        ([str(HYPERFINE), str(HYPERFINE), "--fail-on", "slow"], "did you mean slower"),
        ([str(HYPERFINE), str(HYPERFINE), "-k", "no_such"], "no bench matches"),
        ([str(HYPERFINE), str(HYPERFINE), "-k", "and and"], "-k 'and and'"),
        ([str(HYPERFINE), str(HYPERFINE), "--markdown", "/nowhere/x.md"], "can't write /nowhere/x.md"),
        (["/tmp/*.nothing", str(HYPERFINE)], "no files match"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *arguments]) == 2
    err = capsys.readouterr().err
    assert says in err
    assert err.count("\n") == 1
    assert "Traceback" not in err


def test_several_files_are_the_processes_of_one_side(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "side"
    folder.mkdir()
    for n in range(6):
        shutil.copy(FOLDER / "google_benchmark.json", folder / f"{n}.json")
    (folder / "broken.json").write_text("{")
    assert main(["compare", str(folder), str(folder), "-k", "softmax"]) == 0
    out = capsys.readouterr().out
    assert "broken.json is no JSON" in out
    assert "1 process" not in out


def test_hostile_names_stay_in_their_cell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data: Any = json.loads(HYPERFINE.read_text())
    data["results"][0]["command"] = "a | b\n<img src=x> @team `x`"
    path = tmp_path / "x.json"
    path.write_text(json.dumps(data))
    assert main(["compare", str(path), str(path), "--markdown", "-"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if "img" in line]
    assert len(rows) == 1
    assert "a \\| b &lt;img src=x> &#64;team 'x'" in rows[0]
