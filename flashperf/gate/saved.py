"""Two saved runs of one bench: log times per process, set beside frozen canaries, compared by Welch's test.

Pure. The standard error holds a component between runs: a machine is not the same on another day, and what the
canaries leave of that difference is in no run's own spread.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flashperf.gate.rule import Judged, judge
from flashperf.records import Interval
from flashperf.stats import Estimate, exp_interval, welch

#: The component between runs where no history says it: sd of a run's log ratio to its canary.
DEFAULT_RUN_SD = {"compute": 0.01}
OTHER_RUN_SD = 0.02
RAW_RUN_SD = 0.05  # of raw times: no canary takes out what the machine did
LEAST_HISTORY = 8  # runs
USEFUL_CANARY = 0.8  # the ratio is used only where its sd is below this times that of the raw times
MOVED = 0.05  # canaries further apart than this are worth a word, and both readings must agree


@dataclass(frozen=True)
class ProcessTimes:
    """One bench in one run: log seconds per process, shape (P,), and those of its canary, shape (P,) or empty.

    kind: the canary's kind, such as "compute"; what the runs share is checked before.
    """

    logs: tuple[float, ...]
    canary_logs: tuple[float, ...] = ()
    kind: str = ""

    @property
    def ratios(self) -> tuple[float, ...]:
        """log(bench / canary) per process; empty where there is no canary."""
        return tuple(x - c for x, c in zip(self.logs, self.canary_logs, strict=False))


@dataclass(frozen=True)
class RunSpread:
    """What stored runs say of the machine: sd between runs of the ratio and of raw times; ``runs`` behind it."""

    ratio_sd: float
    raw_sd: float
    runs: int

    @property
    def canary_helps(self) -> bool:
        return self.ratio_sd < USEFUL_CANARY * self.raw_sd


@dataclass(frozen=True)
class SavedComparison:
    """One bench of two saved runs.

    drift: canary now / canary before, None without canaries. used: "ratio" or "raw". raw: now / before without
    canaries, 95 %. run_sd with ``run_sd_from``: where the component between runs came from.
    """

    judged: Judged
    used: str
    raw: Interval
    drift: float | None
    run_sd: float
    run_sd_from: str


def process_log(samples_s: Sequence[float]) -> float:
    """One process's log seconds: the lower quartile of its samples.

    Other work on the machine only ever adds time, so the lower part of the samples says more of the code. On a
    busy machine its spread between processes is half that of a trimmed mean (docs/gate.md); where samples are
    taken in turns with those of the other side, as in process pairs, trimmed means are used.
    """
    return float(np.log(np.quantile(samples_s, 0.25)))


def run_spread(runs: Sequence[ProcessTimes]) -> RunSpread | None:
    """The spread between consecutive stored runs of one bench; None for fewer than 8.

    From successive differences (von Neumann 1941), so that one lasting change of the code inflates it little.
    """
    usable = [run for run in runs if run.logs and len(run.ratios) == len(run.logs)]
    if len(usable) < LEAST_HISTORY:
        return None
    ratio = np.array([np.mean(run.ratios) for run in usable])
    raw = np.array([np.mean(run.logs) for run in usable])
    sd = [math.sqrt(float((np.diff(values) ** 2).mean()) / 2) for values in (ratio, raw)]
    return RunSpread(sd[0], sd[1], len(usable))


def compare_saved(
    name: str,
    before: ProcessTimes,
    now: ProcessTimes,
    threshold: float,
    spread: RunSpread | None = None,
    run_sd: float | None = None,
) -> SavedComparison:
    """The estimate for one bench of two runs; ``run_sd`` overrides what the history says or is assumed.

    Raises ValueError on times that are not finite.
    """
    processes = min(len(before.logs), len(now.logs))
    given = run_sd
    raw_sd = given if given is not None else spread.raw_sd if spread else RAW_RUN_SD
    raw = _estimate(before.logs, now.logs, raw_sd, spread)
    has_canary = bool(before.ratios and now.ratios)
    drift = float(np.exp(np.mean(now.canary_logs) - np.mean(before.canary_logs))) if has_canary else None
    if not has_canary or (spread and not spread.canary_helps):
        source = _source(given, spread)
        judged = Judged(name, raw, threshold, processes)
        return SavedComparison(judged, "raw", exp_interval(raw.interval()), drift, raw_sd, source)
    assumed = DEFAULT_RUN_SD.get(now.kind, OTHER_RUN_SD)
    used_sd = given if given is not None else spread.ratio_sd if spread else assumed
    ratio = _estimate(before.ratios, now.ratios, used_sd, spread)
    raw_alike = _estimate(before.logs, now.logs, used_sd, spread)
    doubt = _doubt(name, ratio, raw_alike, drift, threshold, processes)
    return SavedComparison(
        Judged(name, ratio, threshold, processes, doubt),
        "ratio",
        exp_interval(raw.interval()),
        drift,
        used_sd,
        _source(given, spread),
    )


def _source(given: float | None, spread: RunSpread | None) -> str:
    if given is not None:
        return "as given"
    return f"{spread.runs} stored runs" if spread else "assumed"


def _estimate(
    before: Sequence[float], now: Sequence[float], run_sd: float, spread: RunSpread | None
) -> Estimate:
    if min(len(before), len(now)) < 2:
        return Estimate(float(np.mean(now) - np.mean(before)), math.inf, 0)
    return welch(before, now, run_sd, spread.runs - 1 if spread else math.inf)


def _doubt(
    name: str, ratio: Estimate, raw: Estimate, drift: float | None, threshold: float, processes: int
) -> str:
    """Canaries that moved by more than 5 %: the verdict stands only if raw times don't contradict it."""
    if drift is None or abs(math.log(drift)) <= math.log1p(MOVED):
        return ""
    by_ratio, by_raw = (
        judge([Judged(name, estimate, threshold, processes)])[0].verdict for estimate in (ratio, raw)
    )
    if by_ratio == by_raw:
        return ""
    return f"the machine moved by {drift - 1:+.1%} (canary): by ratio {by_ratio}, by raw time {by_raw}"
