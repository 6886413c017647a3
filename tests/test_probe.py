"""Probes of a variant's memory and quality are of that variant, whichever switches are inactive."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flashperf.explain import pipeline_phases
from flashperf.explain.pipeline_phases import PipelinePhases
from flashperf.pipeline.switches import STANDARD, parse_levels
from flashperf.progress import NullProgress
from flashperf.store import read_records
from flashperf.worker import WorkerProcess


class Probed:
    """A subject that says which levels it was asked about."""

    def peak_memory(self, levels: dict[str, str]) -> dict[str, Any]:
        return {"peak_bytes": 1.0, "levels": levels}

    def held_out(self, levels: dict[str, str], n_bytes: int) -> dict[str, Any]:
        return {"bits_per_byte": 1.0, "levels": levels}


class LocalWorker:
    """A worker without a process."""

    def __init__(self, levels: tuple[dict[str, str], dict[str, str]]) -> None:
        self._process = WorkerProcess(Probed(), levels)  # type: ignore[arg-type]
        self._answer: Any = None

    def send(self, command: str, **arguments: Any) -> None:
        self._answer = getattr(self._process, command)(**arguments)

    def receive(self) -> Any:
        return self._answer

    def ask(self, command: str, **arguments: Any) -> Any:
        self.send(command, **arguments)
        return self.receive()


class LocalPool:
    def __init__(
        self, count: int, subject: str, options: object, standard: dict[str, str], flash: dict[str, str]
    ) -> None:
        self.workers = [LocalWorker((standard, flash)) for _ in range(count)]

    def __enter__(self) -> LocalPool:
        return self

    def __exit__(self, *error: object) -> None:
        pass


def test_probes_are_of_standard_and_of_flash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline_phases, "WorkerPool", LocalPool)
    options: dict[str, Any] = {"budget_s": 9.0, "seed": 0, "out": tmp_path, "progress": NullProgress()}
    phases = PipelinePhases("single", "small", STANDARD, parse_levels("a"), began=None, **options)
    assert any(s.standard != s.flash and not s.active for s in phases.switches), "else this shows nothing"
    with phases.writer:
        phases.probe()
    records = read_records(tmp_path / "record.jsonl")
    flash = {**parse_levels("a"), "batching": STANDARD["batching"]}  # inactive: it stays at standard
    for kind in ("probe", "quality"):
        found = {line["mask"]: line["levels"] for line in records.of(kind)}
        assert found == {0: STANDARD, (1 << 10) - 1: flash}
