"""One ``pytest bench/``: shares out the budget, measures cases against their standard, keeps the rows."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from flashperf import environment, registry
from flashperf.benching.pool import BenchPool
from flashperf.benching.rows import Row, merged_row, standard_of
from flashperf.errors import UserError
from flashperf.gate.canaries import Canary, canary_of
from flashperf.measure import Bound, bind_case, limited_threads, measure_pair
from flashperf.records import Case, Environment, Explanation, Interval, Measurement, Mechanism
from flashperf.stats import ratio_interval
from flashperf.suggest import unknown_name
from flashperf.workers import WorkerError

LONGEST_END_TO_END_S = 60.0
LEAST_CASE_S = 0.05


@dataclass
class Budget:
    """Hands out wall seconds, so that all items together end by the deadline, whatever each one used.

    waiting: item -> its weight, until it has been given its time; reserved: item -> seconds set aside for it.
    """

    total_s: float
    now: Callable[[], float] = time.monotonic
    waiting: dict[str, float] = field(default_factory=dict)
    reserved: dict[str, float] = field(default_factory=dict)
    _deadline: float | None = None

    def plan(self, weights: dict[str, float], reserved: str = "") -> None:
        """The items to come, with what each weighs; the clock starts with the first that asks.

        The item ``reserved`` gets its part of the whole budget, however long those before it take.
        """
        self.waiting = dict(weights)
        if reserved:
            share = self.waiting.pop(reserved) / sum(weights.values())
            self.reserved = {reserved: share * self.total_s}

    def start(self) -> float:
        """When the time is used up; the clock starts with the first call."""
        if self._deadline is None:
            self._deadline = self.now() + self.total_s
        return self._deadline

    def take(self, item: str) -> float:
        """Seconds for this item: its part by weight of what is left."""
        deadline = self.start()
        if item in self.reserved:
            return self.reserved.pop(item)
        weight = self.waiting.pop(item, 1.0)
        left_s = deadline - self.now() - sum(self.reserved.values())
        return max(LEAST_CASE_S, left_s * weight / (weight + sum(self.waiting.values())))

    def drop(self, item: str) -> None:
        """An item that needs no time: it was skipped."""
        self.waiting.pop(item, None)
        self.reserved.pop(item, None)


@dataclass
class BenchSession:
    """State of one pytest run. files: what the workers collect, relative to ``root``."""

    budget: Budget
    cache: str = "warm"
    processes: int = 1
    files: tuple[str, ...] = ()
    root: str = ""
    rows: list[Row] = field(default_factory=list)
    checked: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    explanation: Explanation | None = None
    _environment: Environment | None = None
    _failure: UserError | None = None
    _pool: BenchPool | None = None
    notes: list[str] = field(default_factory=list)

    def pool(self) -> BenchPool | None:
        """The workers, started with the first bench; None where this process measures alone."""
        if self._pool is None and self.processes > 1 and self.files:
            self.budget.start()
            try:
                self._pool = BenchPool(self.processes, self.files, self.root)
            except WorkerError as error:
                self.processes = 1
                self.notes.append(f"measured in this one process: {error}")
        return self._pool

    def close(self) -> None:
        """End the workers."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    @property
    def environment(self) -> Environment:
        """Captured once, before the first measurement."""
        if self._environment is None:
            self._environment = environment.capture()
        return self._environment

    def why_skip(self, mechanism: Mechanism, case: Case) -> str:
        """Why the case can't run here, or empty; counted for the summary."""
        reason = registry.why_not(mechanism, case)
        if reason:
            self.skipped[f"{case.backend}: {reason}"] += 1
        return reason

    def check_only(self, mechanism: Mechanism, case: Case) -> Bound:
        """Bind and check a case, and time nothing (``--benchmark-disable``)."""
        bound = bind_case(mechanism, case)
        self.checked += 1
        return bound

    def measure(
        self, mechanism: Mechanism, case: Case, item: str, canary: str = ""
    ) -> tuple[Row, Measurement]:
        """Measure a case against its standard within the item's part of the budget.

        Returns the row and the measurement of the standard. The standard is measured against itself: its
        ratio shows by how much runs of the same code differ. One thread. ``canary`` names the canary, where
        it isn't the one that the case's costs suggest.
        """
        environment_now = self.environment
        standard = standard_of(mechanism, case)
        seed = int.from_bytes(hashlib.sha256(case.id.encode()).digest()[:8], "big")
        pool = self.pool()
        if pool is not None and item in pool.ready:
            chosen = Canary.parse(canary) if canary else canary_of(mechanism, case)
            budget_s = self.budget.take(item)
            visits = pool.measure(item, standard.variant, budget_s, seed, self.cache, chosen.name)
            row, base = merged_row(visits, standard, chosen.name, environment_now)
        else:
            with limited_threads(1):
                base, measurement, log_ratios = measure_pair(
                    mechanism,
                    standard,
                    case,
                    self.budget.take(item),
                    np.random.default_rng(seed),
                    cache=self.cache,
                    environment=environment_now,
                )
            row = Row(measurement, standard, ratio_interval(log_ratios), len(log_ratios))
        self.rows.append(row)
        return row, base

    def explain(self, item: str) -> Explanation:
        """The end-to-end attribution, measured once for all items that ask for it.

        Raises UserError if it can't be made, and the same again for the next item.
        """
        budget_s = min(self.budget.take(item), LONGEST_END_TO_END_S)
        if self._failure is not None:
            raise self._failure
        if self.explanation is None:
            from flashperf.explain import explain_pipeline

            try:
                self.explanation = explain_pipeline(budget_s=budget_s)
            except UserError as error:
                self._failure = error
                raise
        return self.explanation


def resolve(mechanism: str | Mechanism) -> Mechanism:
    """A mechanism by name, or the object itself. Raises UserError for anything else."""
    if isinstance(mechanism, Mechanism):
        return mechanism
    if isinstance(mechanism, str):
        return registry.mechanism(mechanism)
    raise UserError(f"bench_cases takes the name of a mechanism or a Mechanism, not {mechanism!r}")


def metric_of(explanation: Explanation, variant: str) -> Interval:
    """Seconds of one task of the end-to-end variant. Raises UserError if the explanation has no such time."""
    if variant not in ("standard", "flash"):
        raise UserError(unknown_name("end-to-end variant", variant, ("standard", "flash")))
    for metric in explanation.metrics:
        value: Interval | None = getattr(metric, variant)
        if metric.unit == "s" and "latency" in metric.name and value is not None:
            return value
    raise UserError("the end-to-end run gave no task latency")
