"""Runs stages as processes inside their time limits, and keeps what each left, whatever became of it."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flashperf import environment
from flashperf.gpu_run.machine import Machine, checkout
from flashperf.gpu_run.stages import Stage
from flashperf.gpu_run.summary import write_summary
from flashperf.store import to_json

PASSED, FAILED, TIMED_OUT, SKIPPED = "passed", "failed", "ran out of time", "skipped"
_GRACE_S = 5.0  # between asking a stage to end and ending it
_TAIL_LINES = 12
_LEAST_S = 5.0  # a stage with less time than this is not begun


@dataclass(frozen=True)
class Result:
    """What became of a stage. ``tail`` is the end of its log, ``status`` one of the four words above."""

    stage: str
    status: str
    seconds: float
    limit_s: float
    exit_code: int | None
    tail: tuple[str, ...]


def limit_of(stage: Stage, to_come: Sequence[Stage], left_s: float) -> float:
    """Seconds for a stage: its share by weight of what is left, so that time saved goes to those that follow."""
    return left_s * stage.weight / sum(other.weight for other in to_come)


class Run:
    """One run over stages; the state file is rewritten after each."""

    def __init__(self, machine: Machine, folder: Path, budget_s: float) -> None:
        self.machine, self.folder = machine, folder
        self._end = time.monotonic() + budget_s
        self.results: list[Result] = []
        folder.mkdir(parents=True, exist_ok=True)

    def all(self, stages: Sequence[Stage]) -> int:
        """Run them in order. Returns 1 if one failed or ran out of time, else 0."""
        machine = self.machine
        print(f"GPU: {machine.gpu or 'none: ' + machine.why_not}")
        if not machine.gpu:
            print("the same list runs through the emulator at tiny sizes: checks, no times")
        if machine.missing:
            print(f"not installed: {', '.join(machine.missing)}; what needs them is skipped")
        if not machine.nvcc and machine.gpu:
            print("no nvcc: NVRTC compiles each kernel when it is first used")
        self._save()
        for number, stage in enumerate(stages):
            left_s = self._end - time.monotonic()
            to_come = [other for other in stages[number:] if other is stage or not self._cannot_run(other)]
            self._one(stage, limit_of(stage, to_come, left_s))
            self._save()
        print(f"results in {self.folder}")
        return int(any(result.status in (FAILED, TIMED_OUT) for result in self.results))

    def _one(self, stage: Stage, limit_s: float) -> None:
        why = self._why_skip(stage, limit_s)
        if why:
            self._note(Result(stage.name, SKIPPED, 0.0, limit_s, None, (why,)))
            return
        print(f"{stage.name}: {stage.what} (at most {limit_s:.0f} s) ...", flush=True)
        begin = time.monotonic()
        log = self.folder / f"{stage.name}.log"
        code, timed_out = run_limited(stage.command(self.machine, self.folder, limit_s), log, limit_s)
        status = TIMED_OUT if timed_out else PASSED if code == 0 else FAILED
        tail = tuple(log.read_text(errors="replace").splitlines()[-_TAIL_LINES:])
        self._note(Result(stage.name, status, time.monotonic() - begin, limit_s, code, tail))

    def _why_skip(self, stage: Stage, limit_s: float) -> str:
        """Empty if the stage can run now."""
        return self._cannot_run(stage) or ("no time left" if limit_s < _LEAST_S else "")

    def _cannot_run(self, stage: Stage) -> str:
        """Why the stage can't run on this machine, however much time there is; empty if it can."""
        missing = [module for module in stage.needs if module not in self.machine.versions]
        if stage.times and not self.machine.gpu:
            return "it measures times, and there is no GPU"
        return f"needs {', '.join(missing)}" if missing else ""

    def _note(self, result: Result) -> None:
        self.results.append(result)
        print(f"{result.stage}: {result.status} after {result.seconds:.0f} s")
        for line in result.tail if result.status != PASSED else result.tail[-1:]:
            print(f"    {line}")

    def _save(self) -> None:
        state = {
            "machine": dataclasses.asdict(self.machine),
            "environment": to_json(environment.capture(checkout=checkout())),
            "stages": [dataclasses.asdict(result) for result in self.results],
        }
        partial = self.folder / "run.json.part"
        partial.write_text(json.dumps(state, indent=1))
        partial.replace(self.folder / "run.json")
        write_summary(self.folder)


def run_limited(command: Sequence[str], log: Path, limit_s: float) -> tuple[int | None, bool]:
    """Run a process group, its output into ``log``; (exit code, whether it ran out of time).

    At the limit it is interrupted, so that it can keep what it has, and a little later ended.
    """
    root = checkout()
    paths = [str(root), *filter(None, [os.environ.get("PYTHONPATH", "")])]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}
    with open(log, "wb") as output:
        process = subprocess.Popen(
            list(command),
            cwd=root,
            env=variables,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            return process.wait(limit_s), False
        except subprocess.TimeoutExpired:
            _end(process)
            return process.returncode, True
        except KeyboardInterrupt:
            _end(process)
            raise


def _end(process: subprocess.Popen[bytes]) -> None:
    """Interrupt the process and its children; end them if that isn't enough."""
    os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
