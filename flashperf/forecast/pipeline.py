"""Standard against Flash on a GPU that isn't here: the same counts and the same split as a measured explanation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from flashperf.attribution.prediction import predict
from flashperf.explain.planned import Planner, count_all, find_active
from flashperf.forecast.pricing import (
    KINDS,
    Price,
    PricingEngine,
    gpu_price,
    machine_code,
    modules_of,
    price_all,
)
from flashperf.gpus import LAUNCH_S, Gpu
from flashperf.pipeline.models import load_model
from flashperf.pipeline.scenario import Scenario
from flashperf.pipeline.scenario import scenario as scenario_of
from flashperf.pipeline.switches import parse_flash, parse_levels


@dataclass(frozen=True)
class ForecastShare:
    """A switch's factor of the predicted slowdown; the factors multiply to the whole."""

    switch: str
    standard: str
    flash: str
    ratio: float


@dataclass(frozen=True)
class Forecast:
    """Predicted seconds of one run of each variant. ``parts``: kind -> (Standard, Flash) seconds.

    left_out: what no roof says anything about, with how often Standard and Flash do it
    code_known: whether the units come from machine code, or (without nvcc) from the formats alone
    occupancy: theoretical, of the kernels of Standard and Flash, weighted by their predicted time; None without nvcc
    """

    gpu: Gpu
    subject: str
    standard_s: float
    flash_s: float
    parts: Mapping[str, tuple[float, float]]
    shares: tuple[ForecastShare, ...]
    left_out: Mapping[str, tuple[int, int]]
    code_known: bool
    occupancy: tuple[float | None, float | None]

    @property
    def ratio(self) -> float:
        """Predicted time of Flash over that of Standard."""
        return self.flash_s / self.standard_s


def seen_part(scenario: Scenario) -> float:
    """The part of a cache that a row looks at, in the middle of the decode."""
    length = float(np.mean(scenario.lengths))
    return min(1.0, (length + scenario.steps / 2) / scenario.capacity)


def totals(counts: Counter[str], prices: Mapping[str, Price]) -> dict[str, float]:
    """Seconds of a run by kind."""
    found = dict.fromkeys(KINDS, 0.0)
    for key, count in counts.items():
        found[prices[key].kind] += count * prices[key].seconds
    return found


def forecast_pipeline(
    gpu: Gpu,
    scenario: str = "single",
    model: str = "small",
    standard: str = "",
    flash: str = "a",
    seed: int = 0,
) -> Forecast:
    """Predict the built-in language model on ``gpu``. Nothing runs. Raises UserError for names that are not known."""
    config, _ = load_model(model, seed)
    planned, base, fast = scenario_of(scenario, seed), parse_levels(standard), parse_flash(flash)
    engine = PricingEngine()
    planner = Planner(config, planned, engine)
    switches = find_active(planner, base, fast)
    counts = count_all(planner, switches)
    keys = set(counts.calls)
    used = {key.partition("@")[0] for key in keys}
    calls = {key: call for key, call in engine.calls.items() if key in used}
    code = machine_code(modules_of(calls.values()), gpu.architecture)
    prices = price_all(keys, calls, gpu_price(gpu, seen_part(planned), code), LAUNCH_S)
    both = [planner.counts(levels) for levels in (base, fast)]
    parts = [totals(one, prices) for one in both]
    seconds = [sum(part.values()) for part in parts]
    active = [switch for switch in switches if switch.active]
    isolated = {0: {key: price.seconds for key, price in prices.items()}}
    logs = predict(counts, isolated, {0: seconds[0]}, len(active)).shares[0] if active else []
    return Forecast(
        gpu,
        f"pipeline {model}, scenario {scenario}",
        seconds[0],
        seconds[1],
        {kind: (parts[0][kind], parts[1][kind]) for kind in KINDS if parts[0][kind] + parts[1][kind]},
        tuple(
            ForecastShare(switch.name, switch.standard, switch.flash, float(np.exp(share)))
            for switch, share in zip(active, logs, strict=True)
        ),
        _left_out(both, prices),
        bool(code),
        (mean_occupancy(both[0], prices), mean_occupancy(both[1], prices)),
    )


def mean_occupancy(counts: Counter[str], prices: Mapping[str, Price]) -> float | None:
    """Theoretical occupancy of a run's kernels, weighted by their time; None where no kernel's is known."""
    known = [
        (n * p.seconds, p.occupancy) for key, n in counts.items() if (p := prices[key]).occupancy is not None
    ]
    whole = sum(seconds for seconds, _ in known)
    return sum(seconds * held for seconds, held in known if held is not None) / whole if whole else None


def _left_out(both: list[Counter[str]], prices: Mapping[str, Price]) -> dict[str, tuple[int, int]]:
    """Kernel -> how often Standard and Flash do it, for what has no price."""
    found: dict[str, list[int]] = {}
    for side, counts in enumerate(both):
        for key, count in counts.items():
            if prices[key].kind == "left out":
                found.setdefault(key.partition("(")[0], [0, 0])[side] += count
    return {name: (a, b) for name, (a, b) in sorted(found.items())}
