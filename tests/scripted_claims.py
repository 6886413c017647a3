"""Claims on workers, explanations and scenarios that answer from a script."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flashperf.claims import analysis, run
from flashperf.claims.catalogue import claim_named
from flashperf.deadline import Deadline
from flashperf.errors import UserError
from flashperf.progress import NullProgress
from flashperf.records import Interval
from flashperf.store import RecordWriter
from flashperf.workers import WorkerError


def around(value: float, spread: float = 1.05) -> Interval:
    return Interval(value, value / spread, value * spread)


class ScriptedWorker:
    """Times in which B takes three times as long; pairs of a mechanism in ``wrong`` are refused."""

    wrong: tuple[str, ...] = ()

    def __init__(self, number: int) -> None:
        self.number, self.stopped = number, False
        started.append(self)

    def ask(self, command: str, **_: Any) -> None:
        assert command == "start"

    def call(self, method: str, timeout_s: float = 0.0, **arguments: Any) -> Any:
        if method == "prepare":
            if arguments["mechanism"] in self.wrong:
                raise WorkerError(
                    f"worker {self.number} failed: WrongResult: {arguments['mechanism']} is wrong"
                )
            return []
        factor = float(np.exp(np.random.default_rng(arguments["seed"]).normal(0, 0.01)))
        wall = [1e-3 * (3.0 * factor if side == "B" else 1.0) for side in "ABBABAAB"]
        return {"order": "ABBABAAB", "wall_s": wall, "cpu_s": wall, "repeated": 0, "kept": 0}

    def stop(self) -> None:
        self.stopped = True


started: list[ScriptedWorker] = []


def measured(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    ids: Sequence[str],
    wrong: tuple[str, ...] = (),
    scenario: Any = None,
) -> analysis.ClaimsReport:
    """Run claims and read the record; Flash B is never measured, ``scenario`` answers for scenarios."""
    started.clear()
    monkeypatch.setattr(ScriptedWorker, "wrong", wrong)
    monkeypatch.setattr(run, "Worker", ScriptedWorker)

    def explained(
        which: str, out: Path, budget_s: float, seed: int, wanted: Sequence[Any]
    ) -> dict[str, Interval]:
        if which == "b":
            raise UserError("too little was measured")
        return {source.key: around(2.1) for source in wanted}

    monkeypatch.setattr(run, "_explained", explained)
    monkeypatch.setattr(run, "_scenario", scenario or (lambda *given: {given[-1][0].key: around(0.7)}))
    with RecordWriter(folder / "record.jsonl") as writer:
        claims = [claim_named(name) for name in ids]
        run.ClaimsRun(writer, folder, Deadline(1e9), NullProgress(), 0).measure(claims)
    return analysis.read_report(folder / "record.jsonl")
