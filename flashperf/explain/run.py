"""The phases of an explanation, in order, inside a budget: probe, cycles, isolated calls, interactions, advice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from flashperf import environment
from flashperf.attribution import CostModel, SwitchLevels
from flashperf.errors import EXIT_FAILED, EXIT_INTERRUPTED, UserError
from flashperf.explain.analysis import analyse
from flashperf.explain.session import Deadline, Session, measure_advice
from flashperf.progress import ProgressSink
from flashperf.records import Explanation
from flashperf.store import RecordWriter, read_records
from flashperf.workers import NoAnswerError, WorkerPool

WORKERS = 8
REPORT_S = 3.0  # kept back for tables, pictures and the page
#: Interactions and advice take about this many rounds of cycles; kept back until they are done.
_LATER_ROUNDS = 0.8


class Phases:
    """One explanation being measured: what every subject has in common."""

    subject = ""
    options: dict[str, Any]
    verifies = False

    def __init__(
        self,
        switches: Sequence[SwitchLevels],
        budget_s: float,
        seed: int,
        out: Path,
        progress: ProgressSink,
        began: float | None,
    ) -> None:
        if not math.isfinite(budget_s) or budget_s <= 0:
            raise UserError(f"the budget must be a positive number of seconds, not {budget_s}")
        if seed < 0:
            raise UserError(f"the seed must not be negative, and is {seed}")
        self.switches, self.seed, self.progress = list(switches), seed, progress
        self.deadline = Deadline(budget_s, began)
        self.writer = RecordWriter(out / "record.jsonl")

    @property
    def standard(self) -> dict[str, str]:
        """Levels of the Standard variant."""
        return {switch.name: switch.standard for switch in self.switches}

    @property
    def flash(self) -> dict[str, str]:
        """Levels of the Flash variant."""
        return {switch.name: switch.flash for switch in self.switches}

    def describe(self) -> dict[str, Any]:
        """What the record says was explained, beyond what all subjects share."""
        raise NotImplementedError

    def probe(self) -> None:
        """What is measured before the workers start."""

    def isolate(self, pool: WorkerPool) -> CostModel | None:
        """Time single calls, where the subject has any; the cost model of its mixtures."""
        return None

    def measure(self) -> Explanation:
        """Run all phases; what an interrupt leaves is analysed as partial."""
        with self.writer:
            self.writer.write("explain", seed=self.seed, budget_s=self.deadline.budget_s, **self.describe())
            self._note_environment()
            stopped = "nothing to measure"
            error: Exception | None = None
            if any(switch.active for switch in self.switches):
                try:
                    stopped = self._measure_active()
                except KeyboardInterrupt:
                    stopped = "interrupted"
                except Exception as failure:
                    error = failure
                    if isinstance(failure, NoAnswerError):
                        slow = f"a call hangs, or is too slow for the budget of {self.deadline.budget_s:g} s"
                        error = UserError(f"{failure}: {slow}", EXIT_FAILED)
                    stopped = f"failed: {error}"
            self._note_environment()
            self.writer.write("end", stopped=stopped, seconds=self.deadline.elapsed_s)
        try:
            return replay(self.writer.path)
        except UserError as too_little:
            if error is not None:
                raise error from None
            if stopped == "interrupted":
                raise UserError(f"interrupted: {too_little}", EXIT_INTERRUPTED) from None
            budget = (
                f"the budget of {self.deadline.budget_s:g} s ended before one worker had measured a cycle"
            )
            raise UserError(f"{budget}: give more. {too_little}", too_little.exit_code) from None

    def _measure_active(self) -> str:
        self.progress.phase("starting", f"{WORKERS} worker processes")
        self.probe()
        pool = WorkerPool(WORKERS, self.subject, self.options, self.standard, self.flash)
        with pool:
            self._activate(pool)
            session = Session(
                pool, self.switches, self.writer, self.progress, self.deadline, self.seed, self.verifies
            )
            plural = "es" * (session.k > 1)
            self.progress.phase("measuring", f"{session.k} switch{plural}, {WORKERS} processes taking turns")
            session.plan()
            if not session.cycles(0, REPORT_S):
                return session.stopped
            session.costs = self.isolate(pool)
            number = self._more_cycles(session, 1, REPORT_S + _LATER_ROUNDS * session.round_s)
            session.confirm(REPORT_S)
            self._advise(session)
            self._more_cycles(session, number, REPORT_S)
        return session.stopped

    def _more_cycles(self, session: Session, number: int, reserve_s: float) -> int:
        """Rounds from ``number`` on, until precise enough or no further one fits; the number of the next."""
        self.progress.phase("measuring", f"round {number + 1}")
        while not session.precise():
            if not session.cycles(number, reserve_s):
                return number
            number += 1
        session.stopped = "precise enough"
        return number

    def _advise(self, session: Session) -> None:
        """Run Flash with its most harmful switch back at standard."""
        active = [share for share in session.attribution(session.costs).shares if share.active]
        worst = int(np.argmax([share.share.value for share in active]))
        if active[worst].share.value > 1 and session.k > 1:
            name = active[worst].switch
            self.progress.phase("advice", f"Flash with {name} back at {active[worst].standard}")
            measure_advice(session, worst, REPORT_S)

    def _activate(self, pool: WorkerPool) -> None:
        """Tell workers which switches the bits of a mask stand for."""
        for worker in pool.workers:
            worker.ask("set_active", names=[switch.name for switch in self.switches if switch.active])

    def _note_environment(self) -> None:
        self.writer.write("environment", environment=environment.capture())


def replay(path: str | Path) -> Explanation:
    """Recompute every table from a record. Raises UserError if it is none or holds too little."""
    records = read_records(path)
    notes = ("the record ends in the middle of a line, which was left out",) if records.truncated else ()
    return analyse(records.lines, notes)
