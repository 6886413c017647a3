"""The run over all stages: limits, what is kept, what is skipped, and the pages that it writes."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from flashperf.backends import available
from flashperf.gpu_run import build, machine, runner, stages
from flashperf.gpu_run.comparisons import Row
from flashperf.gpu_run.machine import Machine, architecture
from flashperf.gpu_run.pipeline import mixtures
from flashperf.gpu_run.runner import FAILED, PASSED, SKIPPED, TIMED_OUT, Run, limit_of, run_limited
from flashperf.gpu_run.stages import STAGES, Stage
from flashperf.gpu_run.summary import write_summary

ROOT = Path(__file__).resolve().parent.parent
NO_GPU = Machine("", "no driver", "", {}, {"python": "3.12", "pytest": "9"}, ("cupy-cuda13x",), "")
FAKE_GPU = Machine("NVIDIA H200", "", "sm_90a", {"driver_version": "580"}, {"torch": "2.11"}, (), "13.0")


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def stage(name: str, code: str, weight: float = 1.0, needs: tuple[str, ...] = ()) -> Stage:
    return Stage(name, "does something", weight, needs, lambda *_: python(code))


def test_time_that_is_saved_goes_to_the_stages_that_follow() -> None:
    first, second, third = (stage("s", "", weight) for weight in (1, 2, 1))
    assert limit_of(first, [first, second, third], 400) == 100
    assert limit_of(second, [second, third], 390) == 260
    assert limit_of(third, [third], 380) == 380


def test_a_stage_that_fails_does_not_stop_the_next(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    list_of_stages = [
        stage("good", "print('all well')"),
        stage("bad", "import sys; print('a reason'); sys.exit(3)"),
        stage("absent", "", needs=("torch",)),
        stage("last", "print('the end')"),
    ]
    assert Run(NO_GPU, tmp_path, 100).all(list_of_stages) == 1
    state = json.loads((tmp_path / "run.json").read_text())
    assert [result["status"] for result in state["stages"]] == [PASSED, FAILED, SKIPPED, PASSED]
    assert state["stages"][1]["exit_code"] == 3
    assert state["stages"][1]["tail"] == ["a reason"]
    assert state["stages"][2]["tail"] == ["needs torch"]
    assert state["environment"]["python"]
    printed = capsys.readouterr().out
    assert "GPU: none: no driver" in printed
    assert "not installed: cupy-cuda13x" in printed
    assert "bad: failed after" in printed


def test_a_stage_is_ended_at_its_limit_and_its_output_kept(tmp_path: Path) -> None:
    log = tmp_path / "log"
    code, timed_out = run_limited(python("while True: pass"), log, 0.0)
    assert timed_out
    assert code != 0
    assert run_limited(python("print('kept')"), log, 60.0) == (0, False)
    assert log.read_text() == "kept\n"


def test_a_stage_out_of_time_is_said_to_be_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "run_limited", lambda command, log, limit: (log.write_text("half\n"), True))
    run = Run(NO_GPU, tmp_path, 100)
    assert run.all([stage("slow", "")]) == 1
    assert run.results[0].status == TIMED_OUT
    assert run.results[0].tail == ("half",)


def test_without_time_a_stage_is_not_begun(tmp_path: Path) -> None:
    run = Run(NO_GPU, tmp_path, 1.0)
    assert run.all([stage("late", "raise SystemExit(1)")]) == 0
    assert run.results[0].status == SKIPPED
    assert run.results[0].tail == ("no time left",)


def test_a_stage_of_times_alone_is_left_out_without_a_gpu(tmp_path: Path) -> None:
    timing = dataclasses.replace(stage("timing", "raise SystemExit(1)", weight=9.0), times=True)
    run = Run(NO_GPU, tmp_path, 100)
    assert run.all([stage("first", ""), timing]) == 0
    assert run.results[0].limit_s > 90  # what is left out takes no time from the others
    assert run.results[1].tail == ("it measures times, and there is no GPU",)


def test_every_stage_has_a_command_with_and_without_a_gpu(tmp_path: Path) -> None:
    for found in STAGES:
        for here in (NO_GPU, FAKE_GPU):
            command = found.command(here, tmp_path, 60.0)
            assert command[:2] == [sys.executable, "-m"]
            assert importlib.util.find_spec(command[2]) is not None
    assert sum(s.weight for s in STAGES) <= 480
    names = [s.name for s in STAGES]
    assert names == ["build", "contract", "compare", "bench", "roofs", "pipeline", "explain"]


def test_architectures_and_folders() -> None:
    assert [architecture(text) for text in ("8.0", "9.0", "10.0", "")] == ["sm_80", "sm_90a", "sm_100a", ""]
    assert FAKE_GPU.folder_name == "nvidia-h200"
    assert NO_GPU.folder_name == "emulator"


def test_nvidia_smi_is_read_and_a_broken_one_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.shutil, "which", lambda name: "/bin/nvidia-smi")
    line = "NVIDIA H200, 580.1, 9.0, 143771 MiB, 1980 MHz, 700.00 W\n"
    monkeypatch.setattr(machine.subprocess, "run", lambda *a, **k: SimpleNamespace(stdout=line))
    found = machine._nvidia_smi()
    assert (found["name"], found["compute_cap"]) == ("NVIDIA H200", "9.0")

    def broken(*_: object, **__: object) -> None:
        raise subprocess.CalledProcessError(9, "nvidia-smi")

    monkeypatch.setattr(machine.subprocess, "run", broken)
    assert machine._nvidia_smi() == {}


def test_a_compiler_that_refuses_a_file_fails_the_build(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(build.shutil, "which", lambda name: name)
    monkeypatch.setattr(
        build.binaries, "build", lambda source, into, archs: "no" if source.stem == "hold" else ""
    )
    assert not build.build_cuda("sm_90a")
    assert "files built for sm_90a" in capsys.readouterr().out
    monkeypatch.setattr(build.shutil, "which", lambda name: None)
    assert build.build_cuda("sm_90a")
    assert "NVRTC" in capsys.readouterr().out


def test_the_summary_shows_shares_aims_and_problems(tmp_path: Path) -> None:
    state = {"machine": dataclasses.asdict(FAKE_GPU), "stages": [
        {"stage": "build", "status": PASSED, "seconds": 3.2, "limit_s": 45.0, "tail": ["all | built"]}
    ]}  # fmt: skip
    (tmp_path / "run.json").write_text(json.dumps(state))
    rows = [
        Row("a", "torch", 0.4, share=0.47, share_low=0.45, share_high=0.49, ours_s=2e-4, rate="380 TFLOP/s"),
        Row("b", "copy", 0.9, problem="wrong result, not timed"),
        Row("c", "copy", None),
    ]
    text = json.dumps({"tiny": False, "rows": [dataclasses.asdict(row) for row in rows]})
    (tmp_path / "comparison.json").write_text(text)
    write_summary(tmp_path)
    page = (tmp_path / "summary.md").read_text()
    assert page.startswith("# NVIDIA H200\n")
    assert "| a | torch | 0.47 [0.45, 0.49] | 0.40 | 200.0 us | 380 TFLOP/s | agree |" in page
    assert "| b | copy | wrong result, not timed | 0.90 |" in page
    assert "| c | copy | right, not timed |" in page
    assert "all \\| built" in page


def test_the_pipeline_stage_covers_both_presets_and_their_levels_alone() -> None:
    labels = list(mixtures())
    assert labels[0] == "standard"
    assert {"precision=mixed", "fusion=over", "preset a", "preset b"} <= set(labels)


def load_tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpu_run_tool", ROOT / "tools" / "gpu_run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_set_up_says_what_python_lacks(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    tool = load_tool()
    monkeypatch.setattr(tool, "NEEDED", ("numpy", "no_such_package"))
    assert tool.main() == 2
    assert "lacks no_such_package" in capsys.readouterr().err


def test_set_up_stops_where_the_kernels_can_not_be_built(
    monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    tool = load_tool()
    monkeypatch.setattr(tool, "built", lambda: False)
    monkeypatch.setattr(tool, "build", lambda: False)
    assert tool.main() == 1
    assert "could not be built" in capsys.readouterr().err


def test_stages_run_in_the_order_of_the_list(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from flashperf.gpu_run import __main__ as command

    chosen: list[list[str]] = []
    monkeypatch.setattr(command, "look", lambda: NO_GPU)
    monkeypatch.setattr(Run, "all", lambda self, found: chosen.append([s.name for s in found]) or 0)
    monkeypatch.setattr(sys, "argv", ["gpu_run", "--only", "bench,build", "--out", str(tmp_path)])
    assert command.main() == 0
    assert chosen == [["build", "bench"]]
    monkeypatch.setattr(sys, "argv", ["gpu_run", "--only", "bnech"])
    with pytest.raises(SystemExit):
        command.main()
    assert stages.STAGES[0].name == "build"


def test_a_folder_that_cannot_be_made_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from flashperf.gpu_run import __main__ as command

    (tmp_path / "file").write_text("")
    monkeypatch.setattr(command, "look", lambda: NO_GPU)
    monkeypatch.setattr(
        sys, "argv", ["gpu_run", "--only", "build", "--out", str(tmp_path / "file" / "results")]
    )
    with pytest.raises(SystemExit):
        command.main()
    assert "no results can be written to" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(not available("cuda"), reason="there is a GPU: `make gpu` is the test")
def test_the_whole_list_runs_emulated(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "tools/gpu_run.py", "--budget", "420", "--out", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, timeout=480,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    state = json.loads((tmp_path / "run.json").read_text())
    expected = [SKIPPED if stage.times else PASSED for stage in stages.STAGES]
    assert [result["status"] for result in state["stages"]] == expected
    comparison = json.loads((tmp_path / "comparison.json").read_text())
    assert comparison["rows"]
    assert not any(row["problem"] for row in comparison["rows"])
    pipeline = json.loads((tmp_path / "pipeline.json").read_text())
    assert all("snr_db" in row for row in pipeline["mixtures"])
    assert "Nothing below is a time" in (tmp_path / "summary.md").read_text()
