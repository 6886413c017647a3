"""Two explanations beside each other: what changed in both variants, in the ratio and in every share. Pure.

The runs are independent, so a change is judged by the standard errors that their intervals imply (half width in
log units over t), with a component between runs: a machine is never the same twice. See docs/measuring.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from flashperf.records import Explanation, Interval
from flashperf.report.numbers import bounded
from flashperf.stats import Estimate, exp_interval, t_quantile

RUN_SD = 0.02  # of the log of a time, between runs, assumed where no history says better


@dataclass(frozen=True)
class Change:
    """One number in both runs: after / before, as a ratio with its interval; None where it can't be said."""

    name: str
    before: Interval | None
    after: Interval | None
    ratio: Interval | None


@dataclass(frozen=True)
class TwoRuns:
    """What changed from one run to another.

    metrics:     rows such as ``task latency, Flash``
    total:       of Flash / Standard
    shares:      by switch
    differences: what differs between machines or variants, in words; times are then not comparable
    """

    metrics: tuple[Change, ...]
    total: Change
    shares: tuple[Change, ...]
    differences: tuple[str, ...]


def compare_runs(before: Explanation, after: Explanation) -> TwoRuns:
    """Everything that both explanations hold."""
    workers = before.attribution.workers, after.attribution.workers
    earlier = {metric.name: metric for metric in before.metrics}
    metrics = [
        _change(f"{metric.name}, {side}", getattr(earlier[metric.name], side.lower()), value, workers, RUN_SD)
        for metric in after.metrics
        if metric.name in earlier
        for side, value in (("Standard", metric.standard), ("Flash", metric.flash))
    ]
    old = {share.switch: share for share in before.attribution.shares}
    # a share is a ratio within its run: what moves a whole run moves both of its sides
    shares = [
        _change(share.switch, old[share.switch].share, share.share, workers, 0.0)
        for share in after.attribution.shares
        if share.switch in old and (share.active or old[share.switch].active)
    ]
    total = _change("total", before.attribution.total, after.attribution.total, workers, 0.0)
    return TwoRuns(tuple(metrics), total, tuple(shares), tuple(_differences(before, after)))


def _differences(before: Explanation, after: Explanation) -> list[str]:
    """The keys by which the runs are unlike: machine, subject, levels."""
    found = []
    if before.subject != after.subject:
        found.append(f"subject: {before.subject} → {after.subject}")
    old, new = before.environment.comparable_key, after.environment.comparable_key
    found += [f"{key}: {_text(old[key])} → {_text(new[key])}" for key in new if old[key] != new[key]]
    for side in ("standard", "flash"):
        was, now = getattr(before, side), getattr(after, side)
        found += [
            f"{side} {switch}: {was.get(switch, 'absent')} → {now.get(switch, 'absent')}"
            for switch in {**was, **now}
            if was.get(switch) != now.get(switch)
        ]
    return found


def _text(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _change(
    name: str, before: Interval | None, after: Interval | None, workers: tuple[int, int], run_sd: float
) -> Change:
    logs = [_log_estimate(i, n) for i, n in zip((before, after), workers, strict=True) if i is not None]
    if len(logs) < 2 or None in logs:
        return Change(name, before, after, None)
    a, b = (estimate for estimate in logs if estimate is not None)
    terms = [(a.standard_error**2, a.df), (b.standard_error**2, b.df), (2 * run_sd**2, math.inf)]
    variance = sum(term for term, _ in terms)
    spread = sum(term**2 / df for term, df in terms if df > 0)
    df = variance**2 / spread if spread > 0 else math.inf
    change = Estimate(b.value - a.value, math.sqrt(variance), df)
    return Change(name, before, after, exp_interval(change.interval()))


def _log_estimate(interval: Interval, workers: int) -> Estimate | None:
    """The log of a number with the standard error that its t interval over processes stands for."""
    if not bounded(interval) or workers < 2:
        return None
    half = (math.log(interval.high) - math.log(interval.low)) / 2
    df = workers - 1
    return Estimate(math.log(interval.value), half / t_quantile(interval.confidence, df), df)
