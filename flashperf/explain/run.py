"""The phases of an explanation, in order, inside a budget: probe, cycles, isolated calls, interactions, advice."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from flashperf import environment
from flashperf.attribution import CostModel, SwitchLevels
from flashperf.errors import EXIT_INTERRUPTED, UserError
from flashperf.explain import planned
from flashperf.explain.analysis import analyse
from flashperf.explain.session import Deadline, Session, measure_advice
from flashperf.progress import ProgressSink
from flashperf.records import Explanation
from flashperf.store import RecordWriter, read_records
from flashperf.workers import Worker, WorkerPool

WORKERS = 8
QUALITY_BYTES = 8192
_PROBES = 3  # fresh processes per variant whose peak memory is read
_REPORT_S = 4.0  # kept back for tables, pictures and the page
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
                    stopped, error = f"failed: {failure}", failure
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
            if not session.cycles(0, _REPORT_S):
                return session.stopped
            session.costs = self.isolate(pool)
            number = self._more_cycles(session, 1, _REPORT_S + _LATER_ROUNDS * session.round_s)
            session.confirm(_REPORT_S)
            self._advise(session)
            self._more_cycles(session, number, _REPORT_S)
        return session.stopped

    def _more_cycles(self, session: Session, number: int, reserve_s: float) -> int:
        """Rounds from ``number`` on, until precise enough or no further one fits; the number of the next."""
        self.progress.phase("measuring", f"round {number + 1}")
        while not session.precise() and session.cycles(number, reserve_s):
            number += 1
        if session.precise():
            session.stopped = "precise enough"
        return number

    def _advise(self, session: Session) -> None:
        """Run Flash with its most harmful switch back at standard."""
        active = [share for share in session.attribution().shares if share.active]
        worst = int(np.argmax([share.share.value for share in active]))
        if active[worst].share.value > 1 and session.k > 1:
            name = active[worst].switch
            self.progress.phase("advice", f"Flash with {name} back at {active[worst].standard}")
            measure_advice(session, worst, _REPORT_S / 2)

    def _activate(self, pool: WorkerPool) -> None:
        """Tell workers which switches the bits of a mask stand for."""
        for worker in pool.workers:
            worker.ask("set_active", names=[switch.name for switch in self.switches if switch.active])

    def _note_environment(self) -> None:
        self.writer.write("environment", environment=environment.capture())


class PipelinePhases(Phases):
    """The language model: its calls are counted, timed alone, and its quality is evaluated."""

    subject = "flashperf.pipeline.subject:PipelineSubject"
    verifies = True

    def __init__(
        self,
        scenario: str,
        model: str,
        standard: Mapping[str, str],
        flash: Mapping[str, str],
        backend: str = "cpu",
        **common: Any,
    ) -> None:
        from flashperf.pipeline import adaptive
        from flashperf.pipeline.models import model_config
        from flashperf.pipeline.scenario import scenario as scenario_of

        self.scenario, self.model, self.backend = scenario_of(scenario, common["seed"]), model, backend
        config = model_config(model)
        asked = adaptive.asks_for_rule(standard, flash)
        self.rule = adaptive.measured_rule(config, backend) if asked else None
        if self.rule is not None:
            standard, flash = (adaptive.with_rule(levels, self.rule) for levels in (standard, flash))
        self.planner = planned.Planner(config, self.scenario)
        super().__init__(planned.find_active(self.planner, standard, flash), **common)
        self.options = {"model": model, "scenario": scenario, "seed": self.seed, "backend": backend}

    def describe(self) -> dict[str, Any]:
        from flashperf.energy import EnergyCounter
        from flashperf.pipeline.models import has_quality

        counter = EnergyCounter()
        where = "" if self.backend == "cpu" else f", on {self.backend}"
        return {
            "subject": f"pipeline {self.model}, scenario {self.scenario.name}{where}",
            "switches": self.switches,
            "generated_tokens": self.scenario.continuation.size,
            "real_tokens": self.scenario.tokens,
            "adaptive_rule": self.rule,
            "no_quality": "" if has_quality(self.model) else "random weights have no quality",
            "no_energy": counter.reason,
        }

    def probe(self) -> None:
        """Peak memory of fresh processes, and quality; two processes at a time, nothing is timed."""
        from flashperf.pipeline.models import has_quality

        everything = (1 << sum(switch.active for switch in self.switches)) - 1
        masks = [0, everything] * _PROBES
        for number in range(0, len(masks), 2):
            pool = WorkerPool(2, self.subject, self.options, self.standard, self.flash)
            with pool:
                self._activate(pool)
                for worker, mask in zip(pool.workers, masks[number : number + 2], strict=True):
                    worker.send("call", method="peak_memory", arguments={"mask": mask})
                for worker, mask in zip(pool.workers, masks[number : number + 2], strict=True):
                    self.writer.write("probe", mask=mask, **worker.receive())
                if number or not has_quality(self.model):
                    continue
                for worker, mask in zip(pool.workers, masks, strict=False):
                    arguments = {"mask": mask, "n_bytes": QUALITY_BYTES}
                    worker.send("call", method="held_out", arguments=arguments)
                for worker, mask in zip(pool.workers, masks, strict=False):
                    self.writer.write("quality", mask=mask, n_bytes=QUALITY_BYTES, **worker.receive())

    def isolate(self, pool: WorkerPool) -> CostModel | None:
        """Count the calls of all mixtures; time each kind alone on every worker; profile both variants."""
        self.progress.phase("isolated kernels", "each kind of call by itself, warm and with L2 evicted")
        counts = planned.count_all(self.planner, self.switches)
        self.writer.write("counts", **planned.pack_counts(counts))
        cover = planned.covering_masks(counts)
        everything = max(counts)
        medians = {}
        for number, worker in enumerate(pool.workers):
            if number and self.deadline.left_s < _REPORT_S:
                break  # the shares need some workers' times, only the prediction needs all
            if number % 2 == 0:
                self._bind(pool.workers[number : number + 2], [*cover, 0, everything])
            times = worker.call("isolated", masks=cover)
            self.writer.write("isolated", worker=worker.number, times=times)
            medians[worker.number] = planned.isolated_medians(times, "warm")
            for mask in (0, everything):
                profile = worker.call("profile", mask=mask)
                self.writer.write("profile", worker=worker.number, mask=mask, **profile)
            self.progress.update(
                min(self.deadline.elapsed_s / self.deadline.budget_s, 1.0),
                max(self.deadline.left_s, 0.0),
                [f"isolated kernels, worker {worker.number + 1} of {len(pool.workers)}"],
            )
        return planned.cost_model(counts, medians, everything.bit_length())

    def _bind(self, workers: Sequence[Worker], masks: Sequence[int]) -> None:
        """Fresh memory for some workers, and mixtures bound in it, by all at once since nothing is timed."""
        for worker in workers:
            worker.send("rebuild", seed=worker.number)
            worker.send("call", method="bind", arguments={"masks": list(masks)})
        for worker in workers:
            worker.receive()
            worker.receive()


def replay(path: str | Path) -> Explanation:
    """Recompute every table from a record. Raises UserError if it is none or holds too little."""
    records = read_records(path)
    notes = ("the record ends in the middle of a line, which was left out",) if records.truncated else ()
    return analyse(records.lines, notes)
