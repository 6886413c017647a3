"""From observations to an ``Attribution``: shares with intervals that multiply exactly to the total."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import fdtrc

from flashperf.attribution.costs import CostModel
from flashperf.attribution.design import Observation, SwitchLevels, active_switches
from flashperf.attribution.estimate import WorkerEstimates, estimate_workers
from flashperf.attribution.interactions import confirm_interactions
from flashperf.attribution.prediction import Prediction
from flashperf.records import Attribution, Interval, Share
from flashperf.stats import MIN_PROCESSES, ratio_interval, ratio_of_means_interval

CLEAR_HALF_WIDTHS = 4  # the total must be this far from 1 before percentages of it mean anything
PLACEMENT_RATIO = 2  # between / within above which a share is said to depend on the process


def attribute(
    observations: Sequence[Observation],
    switches: Sequence[SwitchLevels],
    *,
    prediction: Prediction | None = None,
    prediction_cold: Prediction | None = None,
    costs: CostModel | None = None,
    repeated: int = 0,
    seconds: float = 0.0,
    stopped: str = "budget",
    confidence: float = 0.95,
) -> Attribution:
    """Split T(all at flash) / T(all at standard) over the switches.

    Bits of the masks count the active switches in order; an inactive switch has share exactly 1. Cycles give
    shares, confirmation blocks interactions, predictions (warm and evicted caches) what the isolated kernels
    explain. ``costs`` takes interactions that the counted calls explain out of the shares' scatter. ``repeated``,
    ``seconds`` and ``stopped`` are passed through.

    Raises ValueError if nothing can be estimated, or if a worker has no prediction where one is given.
    """
    active = active_switches(switches)
    if not active:
        raise ValueError(
            "no switch is active: the two variants make the same calls, there is nothing to attribute"
        )
    workers = estimate_workers(observations, len(active), costs)
    warm, cold = (p.of(workers.workers) if p else None for p in (prediction, prediction_cold))
    total = ratio_interval(workers.total, confidence)
    clear = percent_is_defined(total)
    shares = [
        _share(switch, active.index(switch), workers, warm, cold, clear, confidence)
        if switch.active
        else _inactive(switch, warm is not None, cold is not None, clear, confidence)
        for switch in switches
    ]
    interactions, detectable = confirm_interactions(observations, active)
    notes = [*workers.notes, *_notes(workers, shares, prediction, prediction_cold)]
    percents = [share.percent.half_width for share in shares if share.percent]
    unexplained = [abs(math.log(share.unexplained.value)) for share in shares if share.unexplained]
    return Attribution(
        total=total,
        shares=tuple(shares),
        interactions=interactions,
        workers=len(workers.workers),
        runs=sum(len(observation.seconds) for observation in observations),
        repeated=repeated,
        seconds=seconds,
        stopped=stopped,
        widest_half_width_log=max(_half_width_log(share.share) for share in shares),
        widest_half_width_percent=max(percents) if percents else None,
        sum_unexplained_log=sum(unexplained) if unexplained else None,
        notes=tuple(notes),
        smallest_detectable_interaction=detectable,
    )


def _inactive(switch: SwitchLevels, predicted: bool, cold: bool, clear: bool, confidence: float) -> Share:
    """The row of a switch that was not measured because it changes nothing."""
    one, none = Interval(1.0, 1.0, 1.0, confidence), Interval(0.0, 0.0, 0.0, confidence)
    return Share(
        switch.name,
        switch.standard,
        switch.flash,
        active=False,
        share=one,
        percent=none if clear else None,
        alone=one,
        on_top=one,
        predicted=one if predicted else None,
        predicted_cold=one if cold else None,
        unexplained=one if predicted else None,
    )


def _share(
    switch: SwitchLevels,
    bit: int,
    workers: WorkerEstimates,
    warm: np.ndarray | None,
    cold: np.ndarray | None,
    clear: bool,
    confidence: float,
) -> Share:
    """The row of one active switch."""
    measured = workers.shares[:, bit]
    percent = None
    if clear:
        part = ratio_of_means_interval(measured, workers.total, confidence)
        percent = Interval(100 * part.value, 100 * part.low, 100 * part.high, confidence)
    return Share(
        switch.name,
        switch.standard,
        switch.flash,
        active=True,
        share=ratio_interval(measured, confidence),
        percent=percent,
        alone=_partial(workers.alone[:, bit], confidence),
        on_top=_partial(workers.on_top[:, bit], confidence),
        predicted=None if warm is None else ratio_interval(warm[:, bit], confidence),
        predicted_cold=None if cold is None else ratio_interval(cold[:, bit], confidence),
        unexplained=None if warm is None else ratio_interval(measured - warm[:, bit], confidence),
        between_over_within=_between_over_within(workers, bit)[0],
    )


def _partial(logs: np.ndarray, confidence: float) -> Interval:
    """A ratio from the workers that have an estimate; nan, 0 to inf if none has."""
    known = logs[~np.isnan(logs)]
    return ratio_interval(known, confidence) if known.size else Interval(math.nan, 0.0, math.inf, confidence)


def percent_is_defined(total: Interval) -> bool:
    """Whether log total is at least 4 half-widths of its interval from 0, so that percent has a meaning."""
    return total.value != 1 and abs(math.log(total.value)) >= CLEAR_HALF_WIDTHS * _half_width_log(total)


def _half_width_log(ratio: Interval) -> float:
    """Half-width of a ratio's interval in log units; inf where it is unbounded."""
    if ratio.low <= 0 or math.isinf(ratio.high):
        return math.inf
    return math.log(ratio.high / ratio.low) / 2


def _between_over_within(workers: WorkerEstimates, bit: int) -> tuple[float | None, float]:
    """sd between workers over the jackknifed sd within, and the p value of such a ratio by chance (F test).

    None where fewer than two workers have two cycles.
    """
    within = workers.within[:, bit]
    known = ~np.isnan(within)
    if known.sum() < 2 or not (within[known] > 0).all():
        return None, 1.0
    between = float(workers.shares[known, bit].std(ddof=1))
    ratio = between / math.sqrt(float((within[known] ** 2).mean()))
    return ratio, float(fdtrc(known.sum() - 1, (workers.cycles[known] - 1).sum(), ratio**2))


def _notes(
    workers: WorkerEstimates, shares: Sequence[Share], warm: Prediction | None, cold: Prediction | None
) -> list[str]:
    notes = []
    count = len(workers.workers)
    if count == 1:
        notes.append("one worker: there is no interval")
    elif count < MIN_PROCESSES:
        notes.append(f"{count} workers: intervals are wide, at least {MIN_PROCESSES} are advised")
    measured = [share for share in shares if share.active]
    for bit, share in enumerate(measured):
        ratio, p = _between_over_within(workers, bit)
        if ratio is not None and ratio > PLACEMENT_RATIO and p < 0.05 / len(measured):
            notes.append(
                f"{share.switch}: the share depends on the process (memory placement): workers differ "
                f"{ratio:.1f} times as much as cycles of one"
            )
    for cache, prediction in (("warm", warm), ("cold", cold)):
        if prediction and prediction.model_error:
            notes.append(f"model error of the prediction ({cache} cache): {prediction.model_error}")
    return notes


def precise_enough(attribution: Attribution, busy: bool) -> bool:
    """Whether every share is as narrow as asked: half-width at most 0.02 in log units or 3 points of the log
    slowdown, whichever is larger; 0.04 or 4 points on a busy machine."""
    return shares_within(attribution, *((0.04, 4.0) if busy else (0.02, 3.0)))


def shares_within(attribution: Attribution, log_limit: float, points: float) -> bool:
    """Whether every active share's half-width is at most ``log_limit`` in log units or ``points`` percentage points
    of the log slowdown, whichever is larger."""
    limit = max(log_limit, points / 100 * abs(math.log(attribution.total.value)))
    return all(_half_width_log(share.share) <= limit for share in attribution.shares if share.active)
