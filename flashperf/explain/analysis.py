"""From the lines of a record to an ``Explanation``. Nothing here measures: a replay takes the same way."""

from __future__ import annotations

import dataclasses
import math
import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from flashperf.attribution import (
    CostModel,
    Observation,
    Prediction,
    active_switches,
    attribute,
    predict,
    standard_seconds,
)
from flashperf.errors import EXIT_TOO_NOISY, UserError
from flashperf.explain.metrics import pipeline_metrics
from flashperf.explain.planned import cost_model, isolated_medians
from flashperf.explain.record import Record, observations_of, sort_lines
from flashperf.records import Advice, Attribution, Explanation, Interval, Share
from flashperf.stats import ratio_interval

#: Ways to end a run that leave nothing out.
WHOLE = ("budget", "precise enough", "nothing to measure")
UNCLOSED = "the record has no closing line: the run was killed, or the file cut off"


def predictions_of(
    record: Record, observations: Sequence[Observation]
) -> tuple[dict[str, Prediction], tuple[str, ...]]:
    """Predictions for "warm" and "cold" (evicted) caches, and why one is missing.

    None where isolated times are missing. Times that can't be (disturbed samples) cost the prediction, not the
    explanation.
    """
    k = len(active_switches(record.switches))
    if not record.isolated or record.counts is None:
        return {}, ()
    try:
        standard = standard_seconds(observations, k)
    except ValueError:
        return {}, ()
    if not set(standard) <= set(record.isolated):
        return {}, ("no prediction: the budget ended before every worker had timed its calls by themselves",)
    found: dict[str, Prediction] = {}
    notes = []
    for state in ("warm", "cold"):
        times = {worker: isolated_medians(record.isolated[worker], state) for worker in standard}
        try:
            found[state] = predict(record.counts, times, standard, k)
        except ValueError as error:
            notes.append(f"no prediction from {state} caches: {error}")
    return found, tuple(notes)


def costs_of(record: Record) -> CostModel | None:
    """The cost model of all mixtures, if the record has the counts and isolated times for one."""
    if not record.isolated or record.counts is None:
        return None
    times = {worker: isolated_medians(found, "warm") for worker, found in record.isolated.items()}
    return cost_model(record.counts, times, len(active_switches(record.switches)))


def attribution_of(record: Record) -> Attribution:
    """Shares, interactions and prediction. Raises UserError if too little was measured."""
    observations = observations_of(record)
    end = record.end or {"stopped": UNCLOSED, "seconds": 0.0}
    predictions, notes = predictions_of(record, observations) if observations else ({}, ())
    try:
        found = attribute(
            observations,
            record.switches,
            prediction=predictions.get("warm"),
            prediction_cold=predictions.get("cold"),
            costs=costs_of(record),
            repeated=sum(line["repeats"] * len(line["masks"]) for line in record.groups),
            seconds=end["seconds"],
            stopped=end["stopped"],
        )
    except ValueError as error:
        raise UserError(str(error), EXIT_TOO_NOISY) from None
    return dataclasses.replace(found, notes=(*found.notes, *notes))


def advice_of(record: Record) -> Advice | None:
    """What the mixture with one switch back at standard gave; None if it was not run by two workers."""
    to_flash, to_standard = [], []
    bit = -1
    for line in record.advice:
        bit = line["bit"]
        means: dict[int, list[float]] = defaultdict(list)
        for mask, run in zip(line["masks"], line["runs"], strict=True):
            means[mask].append(math.log(run["seconds"]))
        mixed = float(np.mean(means[record.everything ^ (1 << bit)]))
        to_flash.append(mixed - float(np.mean(means[record.everything])))
        to_standard.append(mixed - float(np.mean(means[0])))
    if len(to_flash) < 2:
        return None
    switch = active_switches(record.switches)[bit]
    return Advice(
        switch.name, switch.flash, switch.standard, ratio_interval(to_flash), ratio_interval(to_standard)
    )


def no_difference(record: Record, confidence: float = 0.95) -> Attribution:
    """The attribution of two variants that make the same calls: every share is 1 and nothing was measured."""
    one = Interval(1.0, 1.0, 1.0, confidence)
    shares = tuple(Share(s.name, s.standard, s.flash, False, one, None, one, one) for s in record.switches)
    note = "no switch changes a planned call: the two variants are the same program"
    return Attribution(one, shares, (), 0, 0, 0, 0.0, "nothing to measure", 0.0, None, notes=(note,))


def analyse(lines: Iterable[dict[str, Any]], notes: Sequence[str] = ()) -> Explanation:
    """The Explanation of a record: shares, metrics, advice. Raises UserError if it holds too little for one."""
    try:
        return _analysed(sort_lines(lines), notes)
    except (KeyError, TypeError, AttributeError, IndexError, ValueError, zlib.error) as error:
        raise UserError(f"this record is damaged: {type(error).__name__}: {error}") from error


def _analysed(record: Record, notes: Sequence[str]) -> Explanation:
    explain = record.explain
    active = active_switches(record.switches)
    attribution = attribution_of(record) if active else no_difference(record)
    busy = next((e for e in record.environments if e.busy), None)
    return Explanation(
        subject=explain["subject"],
        environment=busy or record.environments[-1],
        standard={switch.name: switch.standard for switch in record.switches},
        flash={switch.name: switch.flash for switch in record.switches},
        metrics=tuple(pipeline_metrics(record, attribution)) if active else (),
        attribution=attribution,
        advice=advice_of(record),
        seed=explain["seed"],
        budget_s=explain["budget_s"],
        seconds=record.end["seconds"] if record.end else 0.0,
        busy=busy is not None,
        partial=record.end is None or record.end["stopped"] not in WHOLE,
        notes=(*notes, *record.notes),
    )
