"""Intervals and tests over process estimates: t distributions only, pure functions on numbers.

The unit is the process everywhere: an "estimate" below is one number from one process, usually a mean log
ratio. Calls of one process are autocorrelated, and bootstraps over a handful of processes cover 73-94 %
where a t interval covers 94.5-97 % (docs/measuring.md), so nothing here resamples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtr, stdtrit

from flashperf.records import Comparison, Interval

MIN_PROCESSES = 6  # below this an interval is still valid, but too wide or too fragile to rest a verdict on


def t_quantile(confidence: float, df: float) -> float:
    """The two-sided t quantile: P(|t| <= quantile) = confidence; ``df`` inf is the normal one."""
    return float(stdtrit(df, (1 + confidence) / 2))


@dataclass(frozen=True)
class Estimate:
    """A mean with its standard error and degrees of freedom; every interval and test follows from these."""

    value: float
    standard_error: float
    df: float

    def interval(self, confidence: float = 0.95) -> Interval:
        """value +- t(df) * standard error. With no degree of freedom the interval is unbounded."""
        if self.df < 1:
            return Interval(self.value, -math.inf, math.inf, confidence)
        half = t_quantile(confidence, self.df) * self.standard_error
        return Interval(self.value, self.value - half, self.value + half, confidence)

    def p_above(self, threshold: float) -> float:
        """One-sided p of "the truth is at most ``threshold``": small means confidently above."""
        if self.df < 1:
            return 1.0
        if self.standard_error == 0:
            return 0.0 if self.value > threshold else 1.0
        return float(stdtr(self.df, -(self.value - threshold) / self.standard_error))

    def p_below(self, threshold: float) -> float:
        """One-sided p of "the truth is at least ``threshold``": small means confidently below."""
        return Estimate(-self.value, self.standard_error, self.df).p_above(-threshold)

    def p_within(self, margin: float) -> float:
        """TOST: the larger one-sided p; small means confidently inside +-``margin`` (Schuirmann 1987)."""
        return max(self.p_above(-margin), self.p_below(margin))


def _finite(values: ArrayLike, what: str) -> np.ndarray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{what}: one number per process is needed, got an array of shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(
            f"{what}: not finite: {array[~np.isfinite(array)][0]} at {np.argmin(np.isfinite(array))}"
        )
    return array


def mean_of(estimates: ArrayLike) -> Estimate:
    """The mean of P process estimates, shape (P,): standard error sd / sqrt(P), P - 1 degrees of freedom.

    One estimate gives df 0, hence an unbounded interval. Raises ValueError if empty or not finite.
    """
    values = _finite(estimates, "estimates")
    if values.size == 1:
        return Estimate(float(values[0]), math.inf, 0)
    error = float(values.std(ddof=1)) / math.sqrt(values.size)
    return Estimate(float(values.mean()), error, values.size - 1)


def exp_interval(interval: Interval) -> Interval:
    """An interval of logs as one of ratios; unbounded ends become 0 and inf."""
    with np.errstate(over="ignore"):
        low, value, high = (float(np.exp(x)) for x in (interval.low, interval.value, interval.high))
    return Interval(value, low, high, interval.confidence)


def t_interval(estimates: ArrayLike, confidence: float = 0.95) -> Interval:
    """Mean of the process estimates, shape (P,), +- t(P - 1) standard errors, in the estimates' unit."""
    return mean_of(estimates).interval(confidence)


def ratio_interval(log_estimates: ArrayLike, confidence: float = 0.95) -> Interval:
    """``t_interval`` of log ratios, shape (P,), as a ratio: exp of its value and ends."""
    return exp_interval(t_interval(log_estimates, confidence))


def ratio_of_means_interval(parts: ArrayLike, wholes: ArrayLike, confidence: float = 0.95) -> Interval:
    """mean(parts) / mean(wholes) over processes, both of shape (P,), with Fieller's interval.

    The ends are the fractions f at which |mean(part - f * whole)| equals t(P - 1) times its standard error
    (E. C. Fieller, Some problems in interval estimation, JRSS B 16, 1954). Where the mean of the wholes is
    not confidently away from zero the set of such f has no two ends, and the interval is unbounded.
    """
    part, whole = _finite(parts, "parts"), _finite(wholes, "wholes")
    if part.shape != whole.shape:
        raise ValueError(f"parts and wholes differ in length: {part.size} and {whole.size}")
    value = float(part.mean() / whole.mean()) if whole.mean() != 0 else math.nan
    if part.size < 2:
        return Interval(value, -math.inf, math.inf, confidence)
    scale = t_quantile(confidence, part.size - 1) ** 2 / part.size
    covariance = scale * np.cov(part, whole)
    a = whole.mean() ** 2 - covariance[1, 1]
    b = part.mean() * whole.mean() - covariance[0, 1]
    c = part.mean() ** 2 - covariance[0, 0]
    if a <= 0:
        return Interval(value, -math.inf, math.inf, confidence)
    root = math.sqrt(max(0.0, b * b - a * c))
    return Interval(value, float((b - root) / a), float((b + root) / a), confidence)


def trimmed_mean(values: ArrayLike, proportion: float = 0.2) -> float:
    """The mean without the floor(n * proportion) smallest and as many largest values of shape (n,)."""
    ordered = np.sort(_finite(values, "values"))
    cut = int(proportion * ordered.size)
    if not 0 <= proportion < 0.5:
        raise ValueError(f"a proportion in [0, 0.5) can be trimmed from each end, not {proportion}")
    return float(ordered[cut : ordered.size - cut].mean())


def holm(p_values: ArrayLike) -> np.ndarray:
    """Holm's adjusted p values, shape (m,): reject where at most alpha, family-wise (S. Holm 1979)."""
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1))
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1.0, stepped)
    return adjusted


def welch(a: ArrayLike, b: ArrayLike, run_sd: float = 0.0, run_df: float = math.inf) -> Estimate:
    """mean(b) - mean(a) of two unpaired sets of process means, with the component between runs.

    se^2 = s_a^2 / P_a + s_b^2 / P_b + 2 run_sd^2; degrees of freedom by Welch and Satterthwaite, ``run_df``
    those of run_sd (stored runs - 1; inf where it is assumed). Raises ValueError if a side has one process.
    """
    sides = [_finite(a, "a"), _finite(b, "b")]
    if min(side.size for side in sides) < 2:
        raise ValueError("Welch's test needs at least two processes on each side")
    terms = [(float(side.var(ddof=1)) / side.size, side.size - 1.0) for side in sides]
    terms.append((2 * run_sd**2, run_df))
    variance = sum(term for term, _ in terms)
    spread = sum(term**2 / df for term, df in terms)
    df = variance**2 / spread if spread > 0 else math.inf
    return Estimate(float(sides[1].mean() - sides[0].mean()), math.sqrt(variance), df)


def jackknife_standard_error(leave_one_out: ArrayLike) -> np.ndarray:
    """Standard error from G leave-one-group-out estimates on axis 0: sqrt((G - 1) / G * sum of squares)."""
    estimates = np.asarray(leave_one_out, dtype=np.float64)
    groups = estimates.shape[0]
    if groups < 2:
        raise ValueError("a jackknife needs at least two groups")
    return np.sqrt((groups - 1) / groups * ((estimates - estimates.mean(axis=0)) ** 2).sum(axis=0))


def double_block_order(rng: np.random.Generator) -> str:
    """ABBA and BAAB in random order: the sides of the eight samples of a double block."""
    return "ABBABAAB" if rng.random() < 0.5 else "BAABABBA"


def double_block_log_ratio(seconds: ArrayLike, order: str) -> np.ndarray:
    """Reduce double blocks, shape (..., 8) in run order, to mean log b - mean log a each, shape (...).

    ``order`` gives the side of each sample, as from ``double_block_order``. Raises ValueError on a wrong
    length, on sides out of balance and on times that are not positive.
    """
    times = np.asarray(seconds, dtype=np.float64)
    sides = np.array(list(order.upper()))
    if times.shape[-1:] != sides.shape or sorted(set(order.upper())) != ["A", "B"]:
        raise ValueError(f"order {order!r} does not name a side, A or B, for each of shape {times.shape}")
    if (sides == "A").sum() != (sides == "B").sum():
        raise ValueError(f"order {order!r} is not balanced")
    if not (np.isfinite(times) & (times > 0)).all():
        raise ValueError("times must be positive and finite")
    logs = np.log(times)
    return np.asarray(logs[..., sides == "B"].mean(axis=-1) - logs[..., sides == "A"].mean(axis=-1))


def compare_log_ratios(
    log_ratios: ArrayLike, margin: float, *, blocks: int | None = None, confidence: float = 0.95
) -> Comparison:
    """Judge b against a from one mean log(time b / time a) per process, shape (P,).

    ``equivalent``: both one-sided tests place the ratio within a factor of 1 + margin of 1 at 1 - confidence.
    Otherwise ``slower`` or ``faster`` where the interval excludes 1, else ``unresolved``, with the reason.
    ``blocks`` is the number of blocks behind the estimates (default: one a process).
    """
    if not 0 <= margin < math.inf:
        raise ValueError(f"margin is a fraction such as 0.02, not {margin}")
    mean = mean_of(log_ratios)
    ratio = exp_interval(mean.interval(confidence))
    processes = int(np.size(np.asarray(log_ratios)))
    reason = ""
    if processes < MIN_PROCESSES:
        reason = f"from {processes} processes; at least {MIN_PROCESSES} are advised"
    if margin > 0 and mean.p_within(math.log1p(margin)) <= 1 - confidence:
        verdict = "equivalent"
    elif ratio.low > 1:
        verdict = "slower"
    elif ratio.high < 1:
        verdict = "faster"
    else:
        verdict = "unresolved"
        reason = _why_unresolved(mean, ratio, margin, processes)
    return Comparison(ratio, verdict, processes if blocks is None else blocks, processes, margin, reason)


def _why_unresolved(mean: Estimate, ratio: Interval, margin: float, processes: int) -> str:
    """What keeps a verdict open, and roughly how many processes of this spread would settle it."""
    if mean.df < 1:
        return "one process has no interval; at least two are needed"
    half = t_quantile(ratio.confidence, mean.df) * mean.standard_error
    distance = max(abs(mean.value), math.log1p(margin) - abs(mean.value))
    needed = math.ceil(processes * (half / distance) ** 2) if distance > 0 else math.inf
    text = f"{ratio.confidence:.0%} interval {ratio.low:.4g} to {ratio.high:.4g} holds 1"
    if margin > 0:
        text += f" and reaches beyond +-{margin:.2g}"
    if needed <= 50 * processes:
        text += f"; about {max(int(needed), processes + 1)} processes of this spread would settle it"
    return text
