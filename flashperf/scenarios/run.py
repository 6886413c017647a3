"""Runs a scenario into a record, and reads it back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flashperf import environment
from flashperf.cases.guards import first_reason, this_machine
from flashperf.deadline import Deadline
from flashperf.errors import UserError
from flashperf.progress import ProgressSink
from flashperf.records import Environment
from flashperf.scenarios.definition import Findings, Scenario
from flashperf.scenarios.registry import scenario_named
from flashperf.store import RecordWriter, from_json, read_records


class RecordingRun:
    """A record that is being written, with the time left and a display."""

    def __init__(self, writer: RecordWriter, deadline: Deadline, progress: ProgressSink, seed: int) -> None:
        self._writer, self.deadline, self._progress, self.seed = writer, deadline, progress, seed

    def write(self, kind: str, **fields: Any) -> None:
        """Append a line."""
        self._writer.write(kind, **fields)

    def tell(self, detail: str) -> None:
        """Show what is being done."""
        done = self.deadline.elapsed_s / max(self.deadline.budget_s, 1e-9)
        self._progress.update(min(done, 1.0), max(self.left_s, 0.0), [detail])

    @property
    def left_s(self) -> float:
        """Seconds left of the budget."""
        return self.deadline.left_s


@dataclass(frozen=True)
class ScenarioReport:
    """A scenario's findings, and where they come from. ``stopped``: "done", "interrupted", "killed" or a failure."""

    scenario: Scenario
    findings: Findings
    environment: Environment
    seconds: float
    stopped: str


def run_scenario(
    scenario: Scenario,
    out: Path,
    budget_s: float,
    seed: int,
    progress: ProgressSink,
    began: float | None = None,
) -> Path:
    """Measure into ``out``/record.jsonl and return its path.

    Raises UserError if the scenario can't run here or the budget or seed is none; what breaks while measuring
    is raised after what was measured has been recorded.
    """
    if not 0 < budget_s < math.inf:
        raise UserError(f"the budget must be a positive number of seconds, not {budget_s:g}")
    if seed < 0:
        raise UserError(f"the seed must not be negative, and is {seed}")
    missing = first_reason(scenario.requires, this_machine())
    if missing:
        raise UserError(f"scenario {scenario.name} {missing}")
    path = out / "record.jsonl"
    deadline, stopped = Deadline(budget_s, began), "done"
    with RecordWriter(path) as writer:
        run = RecordingRun(writer, deadline, progress, seed)
        run.write("scenario", name=scenario.name, seed=seed, budget_s=budget_s)
        run.write("environment", environment=environment.capture())
        progress.phase(f"scenario {scenario.name}", scenario.question)
        try:
            scenario.measure(run)
        except KeyboardInterrupt:
            stopped = "interrupted"
        except Exception as error:
            stopped = f"failed: {error}"
            raise
        finally:
            run.write("end", stopped=stopped, seconds=deadline.elapsed_s)
    return path


def read_report(path: Path, name: str | None = None) -> ScenarioReport:
    """The report of a record. Raises UserError if it is none of a scenario, or of another one than ``name``."""
    records = read_records(path)
    head, where = (next(records.of(kind), None) for kind in ("scenario", "environment"))
    if head is None or where is None:
        raise UserError(f"{path} is not a record of flashperf scenario")
    if name is not None and head["name"] != name:
        raise UserError(f"{path} is a record of scenario {head['name']}, not of {name}")
    scenario = scenario_named(head["name"])
    end: dict[str, Any] = next(records.of("end"), {"seconds": math.nan, "stopped": "killed"})
    findings = scenario.analyse(_of_run(records.lines))
    environment_then = from_json(Environment, where["environment"])
    return ScenarioReport(scenario, findings, environment_then, float(end["seconds"]), end["stopped"])


def _of_run(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line for line in lines if line["kind"] not in ("scenario", "environment", "end")]
