"""How far the method of the predictions holds: on this CPU, with its measured roofs, against what it measures.

The same counts, the same work per call and the same rule (the largest least time) as for a GPU; here the roofs are
measured and the calls can be timed. What comes out is how far a prediction may be trusted where nothing can be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from flashperf.explain.planned import Planner
from flashperf.forecast.pipeline import seen_part
from flashperf.forecast.pricing import PricingEngine, price_all, roof_price
from flashperf.pipeline.scenario import scenario as scenario_of
from flashperf.pipeline.subject import PipelineSubject
from flashperf.pipeline.switches import Levels, parse_flash, parse_levels

_RUNS = 8
_BUSY = 0.05


@dataclass(frozen=True)
class Side:
    """One variant: predicted seconds, those of its calls in isolation, and those of a whole run with host work."""

    predicted_s: float
    isolated_s: float
    measured_s: float

    @property
    def error(self) -> float:
        """Predicted over measured, less 1: -0.4 is 40 % too short."""
        return self.predicted_s / self.measured_s - 1


@dataclass(frozen=True)
class Accuracy:
    """Both variants, and kernel -> (predicted, measured) seconds of all its calls in a run of both.

    Isolated calls find their arrays in the caches that hold them, and are predicted so; in a run the whole model
    passes in between. waited: part of the measured runs that was spent waiting for a core
    """

    roofs: str
    standard: Side
    flash: Side
    kernels: Mapping[str, tuple[float, float]]
    waited: float

    @property
    def ratio_error(self) -> float:
        """Of the predicted slowdown Flash / Standard, against the measured one."""
        predicted = self.flash.predicted_s / self.standard.predicted_s
        return predicted / (self.flash.measured_s / self.standard.measured_s) - 1

    @property
    def typical_factor(self) -> float:
        """Median over kernels of measured / predicted: how far they stay below their roofs."""
        return float(np.median([measured / predicted for predicted, measured in self.kernels.values()]))


def check_accuracy(
    roofs: Any,
    name: str,
    scenario: str = "single",
    model: str = "small",
    standard: str = "",
    flash: str = "a",
    seed: int = 0,
    runs: int = _RUNS,
) -> Accuracy:
    """Predict and measure both variants of the built-in model on this CPU, in this process.

    ``roofs``: those of this machine (``flashperf.roofs.Roofs``), called ``name``. Raises UserError for names that are
    not known, WrongLogitsError for a variant whose logits are wrong: it is not timed.
    """
    planned, both = scenario_of(scenario, seed), [parse_levels(standard), parse_flash(flash)]
    subject = PipelineSubject(model, scenario, None, seed)
    engine = PricingEngine()
    planner = Planner(subject.config, planned, engine)
    counts = [planner.counts(levels) for levels in both]
    weights = 4 * sum(prod(shape) for shape in subject.config.shapes().values())
    keys, seen = {*counts[0], *counts[1]}, seen_part(planned)
    prices = price_all(keys, engine.calls, roof_price(roofs, weights, seen), roofs.fixed_s()[0])
    alone = price_all(keys, engine.calls, roof_price(roofs, 0, seen), roofs.fixed_s()[0])
    subject.check(both)
    measured, waited = _medians(subject, both, runs)
    isolated = {key: float(np.median(times["warm"])) for key, times in subject.isolated(both).items()}
    priced = [{key: n for key, n in one.items() if prices[key].seconds and key in isolated} for one in counts]
    kernels: dict[str, tuple[float, float]] = {}
    for one in priced:
        for key, n in one.items():
            kernel = key.partition("(")[0]
            before = kernels.get(kernel, (0.0, 0.0))
            kernels[kernel] = before[0] + n * alone[key].seconds, before[1] + n * isolated[key]
    sides = [
        Side(
            sum(n * prices[key].seconds for key, n in one.items()),
            sum(n * isolated[key] for key, n in one.items()),
            seconds,
        )
        for one, seconds in zip(priced, measured, strict=True)
    ]
    return Accuracy(name, sides[0], sides[1], kernels, waited)


def _medians(subject: PipelineSubject, both: Sequence[Levels], runs: int) -> tuple[list[float], float]:
    """Median seconds of a run of each, taking turns, over the half that waited least for a core; how much it waited."""
    made = [[subject.run(levels) for levels in both] for _ in range(runs)]
    seconds, waited = [], 0.0
    for own in zip(*made, strict=True):
        calmest = sorted(own, key=lambda run: run.get("runqueue_s", 0.0))[: (len(own) + 1) // 2]
        seconds.append(float(np.median([run["seconds"] for run in calmest])))
        waited = max(
            waited, float(np.median([run.get("runqueue_s", 0.0) / run["seconds"] for run in calmest]))
        )
    return seconds, waited


def lines(found: Accuracy, most_kernels: int = 8) -> list[str]:
    """What was found, as text."""
    said = [
        f"The prediction method on this CPU, with its measured roofs ({found.roofs})",
        "",
        f"{'':10}{'predicted':>12}{'isolated':>12}{'measured run':>15}{'error':>9}",
    ]
    for name, side in (("Standard", found.standard), ("Flash", found.flash)):
        times = (f"{1e3 * s:.3g} ms" for s in (side.predicted_s, side.isolated_s, side.measured_s))
        said.append("{:10}{:>12}{:>12}{:>15}{:>+8.0f} %".format(name, *times, 100 * side.error))
    waited = f"{100 * min(1.0, found.waited):.0f} %"
    busy = [f"This machine is busy: {waited} of the measured runs was spent waiting for a core."]
    said += [
        "",
        *(busy if found.waited > _BUSY else []),
        f"The predicted slowdown is off by {100 * found.ratio_error:+.0f} %: the measured run has host work, which no "
        "roof predicts.",
        f"In isolation half of the kernels take more than {found.typical_factor:.2g} times what is predicted.",
        "",
        f"{'the longest kernels':34}{'predicted':>12}{'isolated':>12}{'factor':>9}",
    ]
    for kernel, (predicted, measured) in sorted(found.kernels.items(), key=lambda row: -row[1][1])[
        :most_kernels
    ]:
        said.append(
            f"{kernel[:33]:34}{1e6 * predicted:>9.3g} µs{1e6 * measured:>9.3g} µs{measured / predicted:>8.2g}x"
        )
    return said
