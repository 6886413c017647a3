"""One ``pytest bench/``: shares out the budget, measures cases against their standard, keeps the rows."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from flashperf import environment, registry
from flashperf.errors import UserError
from flashperf.measure import Bound, bind_case, limited_threads, measure_pair
from flashperf.records import Case, Environment, Explanation, Interval, Measurement, Mechanism
from flashperf.stats import ratio_interval
from flashperf.store import to_json
from flashperf.suggest import unknown_name

LONGEST_END_TO_END_S = 60.0
LEAST_CASE_S = 0.05
SAME_PROCESS = "blocks of one process"


@dataclass
class Budget:
    """Hands out wall seconds, so that all items together end by the deadline, whatever each one used.

    waiting: item -> its weight, until it has been given its time.
    """

    total_s: float
    now: Callable[[], float] = time.monotonic
    waiting: dict[str, float] = field(
        default_factory=dict
    )  # item -> weight, until it has been given its time
    _deadline: float | None = None

    def plan(self, weights: dict[str, float]) -> None:
        """The items to come, with what each weighs; the clock starts with the first that asks."""
        self.waiting = dict(weights)

    def take(self, item: str) -> float:
        """Seconds for this item: its part by weight of what is left."""
        if self._deadline is None:
            self._deadline = self.now() + self.total_s
        weight = self.waiting.pop(item, 1.0)
        left_s = self._deadline - self.now()
        return max(LEAST_CASE_S, left_s * weight / (weight + sum(self.waiting.values())))

    def drop(self, item: str) -> None:
        """An item that needs no time: it was skipped."""
        self.waiting.pop(item, None)


@dataclass(frozen=True)
class Row:
    """What one case gave: its measurement and its time over that of its standard, both in this process."""

    measurement: Measurement
    standard: Case
    ratio: Interval
    blocks: int


@dataclass
class BenchSession:
    """State of one pytest run."""

    budget: Budget
    cache: str = "warm"
    rows: list[Row] = field(default_factory=list)
    checked: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    explanation: Explanation | None = None
    _environment: Environment | None = None
    _failure: UserError | None = None

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

    def measure(self, mechanism: Mechanism, case: Case, item: str) -> tuple[Row, Measurement]:
        """Measure a case against its standard within the item's part of the budget.

        Returns the row and the measurement of the standard. The standard is measured against itself: its
        ratio shows by how much runs of the same code differ. One thread.
        """
        environment_now = self.environment
        standard = standard_of(mechanism, case)
        with limited_threads(1):
            base, measurement, log_ratios = measure_pair(
                mechanism,
                standard,
                case,
                self.budget.take(item),
                np.random.default_rng(int.from_bytes(hashlib.sha256(case.id.encode()).digest()[:8], "big")),
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


def standard_of(mechanism: Mechanism, case: Case) -> Case:
    """The case of the variant that this one is measured against: the standard, else the first of its backend."""
    for variant in (mechanism.standard, *mechanism.variants):
        standard = case.with_variant(variant)
        if case.backend in mechanism.variants[variant] and not mechanism.supports(standard):
            return standard
    return case


def resolve(mechanism: str | Mechanism) -> Mechanism:
    """A mechanism by name, or the object itself. Raises UserError for anything else."""
    if isinstance(mechanism, Mechanism):
        return mechanism
    if isinstance(mechanism, str):
        return registry.mechanism(mechanism)
    raise UserError(f"bench_cases takes the name of a mechanism or a Mechanism, not {mechanism!r}")


def extra_info(mechanism: Mechanism, row: Row, standard: Measurement) -> dict[str, Any]:
    """What goes beside the samples into pytest-benchmark's record; plain JSON, seconds, bytes, FLOPs."""
    m, case = row.measurement, row.measurement.case
    median_s = float(np.median(m.samples_s))
    tolerance = mechanism.tolerance(case)
    info = {
        "case": case.id,
        "seed": case.seed,
        "standard": row.standard.id,
        "ratio_to_standard": {"blocks": row.blocks, "interval_over": SAME_PROCESS} | to_json(row.ratio),
        "flops": m.cost.flops,
        "bytes": m.cost.bytes,
        "ideal_bytes": mechanism.ideal_bytes(case),
        "launches": m.cost.launches,
        "gflop_per_s": m.cost.flops / median_s * 1e-9,
        "gbyte_per_s": m.cost.bytes / median_s * 1e-9,
        "error": m.check,
        "tolerance": tolerance,
        "cache": m.cache_state,
        "timer": m.timer,
        "calls_per_sample": m.calls_per_sample,
        "first_call_s": m.first_call_s,
        "samples_s": m.samples_s,
        "cpu_s": m.cpu_s,
        "standard_samples_s": standard.samples_s,
        "disturbed_samples": m.disturbed,
        "stand_in": mechanism.stand_in.get(case.variant, "") if case.backend == "cpu" else "",
    }
    if m.environment:
        info["environment"] = m.environment.comparable_key
        info["busy"] = m.environment.busy_reason
    return to_json(info)


def metric_of(explanation: Explanation, variant: str) -> Interval:
    """Seconds of one task of the end-to-end variant. Raises UserError if the explanation has no such time."""
    if variant not in ("standard", "flash"):
        raise UserError(unknown_name("end-to-end variant", variant, ("standard", "flash")))
    for metric in explanation.metrics:
        value: Interval | None = getattr(metric, variant)
        if metric.unit == "s" and "latency" in metric.name and value is not None:
            return value
    raise UserError("the end-to-end run gave no task latency")
