"""The decision rule of the gate: pure functions from estimates of log ratios to verdicts.

An estimate is of log(time now / time before), from process pairs (t, P - 1) or from two saved runs (Welch). With
d = log(1 + D): *slower* if Holm over the one-sided tests of "at most d" rejects at 5 %; *no slower than D* if the
test of "at least d" rejects at 5 %, unadjusted, since a suite passes only if every bench does (intersection-union:
Berger 1982). What neither settles is *can't tell*.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import digamma, polygamma, stdtrit

from flashperf.records import Interval
from flashperf.stats import MIN_PROCESSES, Estimate, exp_interval, holm

ALPHA = 0.05
SLOWER, FASTER, EQUIVALENT = "slower", "faster", "equivalent"
NO_SLOWER, CANT_TELL = "no slower", "can't tell"
PASSED = (FASTER, EQUIVALENT, NO_SLOWER)


@dataclass(frozen=True)
class Judged:
    """What is known of one bench.

    threshold: D as a fraction (0.05 is 5 %); processes: the smaller number of processes of the two sides, or
    of pairs; doubt: why no verdict may rest on the estimate, or empty.
    """

    name: str
    estimate: Estimate
    threshold: float
    processes: int
    doubt: str = ""

    @property
    def margin(self) -> float:
        """d = log(1 + D)."""
        return math.log1p(self.threshold)


@dataclass(frozen=True)
class Verdict:
    """A bench judged.

    ratio: time now / time before with the plain 95 % interval. bounds: the lower and upper confidence bounds
    that the verdict rests on; *slower* exactly where the lower is above 1 + D, *no slower* where the upper is
    below. p_slower is adjusted by Holm, p_no_slower is not (unless strict).
    """

    name: str
    verdict: str
    ratio: Interval
    bounds: tuple[float, float]
    threshold: float
    processes: int
    p_slower: float
    p_no_slower: float
    equivalent: bool
    reason: str = ""

    @property
    def passed(self) -> bool:
        """Shown to be no slower than D."""
        return self.verdict in PASSED


def judge(benches: Sequence[Judged], strict: bool = False) -> list[Verdict]:
    """A verdict for each bench, in their order; m in Holm's procedure is their number.

    ``strict`` adjusts "no slower" by Holm too. A bench in doubt, or of fewer than 6 processes, is never judged
    slower or no slower, and still counts in m.
    """
    fit = [not b.doubt and b.processes >= MIN_PROCESSES for b in benches]
    slower = holm([b.estimate.p_above(b.margin) if ok else 1.0 for b, ok in zip(benches, fit, strict=True)])
    plain = [b.estimate.p_below(b.margin) if ok else 1.0 for b, ok in zip(benches, fit, strict=True)]
    no_slower = holm(plain) if strict else np.array(plain)
    faster = holm([b.estimate.p_below(-b.margin) if ok else 1.0 for b, ok in zip(benches, fit, strict=True)])
    levels = _bound_levels(slower)
    no_slower_level = ALPHA / max(1, len(benches)) if strict else ALPHA
    return [
        _verdict(bench, ok, p_s, p_n, p_f, (level, no_slower_level))
        for bench, ok, p_s, p_n, p_f, level in zip(
            benches, fit, slower, no_slower, faster, levels, strict=True
        )
    ]


def _bound_levels(adjusted: np.ndarray) -> list[float]:
    """The level of each lower bound: ALPHA / (m - r), r = benches that Holm called slower before this one.

    A bench that is not called stands at the step where the procedure stopped.
    """
    order = np.argsort(adjusted, kind="stable")
    called = int((adjusted <= ALPHA).sum())
    levels = [0.0] * adjusted.size
    for rank, index in enumerate(order):
        levels[int(index)] = ALPHA / max(1, adjusted.size - min(rank, called))
    return levels


def _verdict(
    bench: Judged,
    fit: bool,
    p_slower: float,
    p_no_slower: float,
    p_faster: float,
    levels: tuple[float, float],
) -> Verdict:
    estimate = bench.estimate
    equivalent = fit and estimate.p_within(bench.margin) <= ALPHA
    if p_slower <= ALPHA:
        word = SLOWER
    elif p_faster <= ALPHA:
        word = FASTER
    elif p_no_slower <= ALPHA:
        word = EQUIVALENT if equivalent else NO_SLOWER
    else:
        word = CANT_TELL
    return Verdict(
        name=bench.name,
        verdict=word,
        ratio=exp_interval(estimate.interval(0.95)),
        bounds=(_bound(estimate, levels[0], -1), _bound(estimate, levels[1], 1)),
        threshold=bench.threshold,
        processes=bench.processes,
        p_slower=float(p_slower),
        p_no_slower=float(p_no_slower),
        equivalent=equivalent,
        reason=_why_open(bench) if word == CANT_TELL else "",
    )


def _bound(estimate: Estimate, level: float, side: int) -> float:
    """The one-sided confidence bound of the ratio at 1 - ``level``: below (-1) or above (1)."""
    if estimate.df < 1 or not math.isfinite(estimate.standard_error):
        return 0.0 if side < 0 else math.inf
    reach = side * float(stdtrit(estimate.df, 1 - level)) * estimate.standard_error
    return float(np.exp(estimate.value + reach))


def _why_open(bench: Judged) -> str:
    """Why there is no verdict, with the spread, and what would settle it."""
    if bench.doubt:
        return bench.doubt
    if bench.processes < MIN_PROCESSES:
        plural = "es" if bench.processes != 1 else ""
        return f"{bench.processes} process{plural}, at least {MIN_PROCESSES} are needed"
    estimate = bench.estimate
    spread = estimate.standard_error * math.sqrt(bench.processes)
    text = f"spread {spread:.1%} between processes"
    distance = abs(bench.margin - estimate.value)
    reach = float(stdtrit(estimate.df, 1 - ALPHA)) * estimate.standard_error
    needed = bench.processes * (reach / distance) ** 2 if distance > 0 else math.inf
    if needed <= 4 * bench.processes:
        return f"{text}; about {math.ceil(max(needed, bench.processes + 1))} would settle it"
    if distance < bench.margin / 4:
        return f"{text}; it lies at the threshold itself: only another one would settle it"
    return f"{text}; needs a quieter machine, or another size of this bench"


def moderated(estimates: Sequence[Estimate]) -> list[Estimate]:
    """Estimates with variances shrunk towards their common prior, shape (m,): limma's empirical Bayes.

    Needs at least 6 estimates of one number of degrees of freedom; otherwise they come back as they are.
    (G. K. Smyth, Linear models and empirical Bayes methods, Stat. Appl. Genet. Mol. Biol. 3, 2004, section 6.2.)
    """
    df = estimates[0].df if estimates else 0.0
    errors = np.array([e.standard_error for e in estimates])
    if len(estimates) < 6 or df < 1 or any(e.df != df for e in estimates) or not (errors > 0).all():
        return list(estimates)
    logs = np.log(errors**2)
    centred = logs - digamma(df / 2) + math.log(df / 2)
    excess = float(centred.var(ddof=1) - polygamma(1, df / 2))
    if excess > 0:
        prior_df = 2 * _inverse_trigamma(excess)
        prior = math.exp(centred.mean() + float(digamma(prior_df / 2)) - math.log(prior_df / 2))
        variances = (prior_df * prior + df * errors**2) / (prior_df + df)
        total = min(prior_df + df, df * len(estimates))
    else:
        variances, total = np.full(errors.size, math.exp(centred.mean())), df * len(estimates)
    return [
        replace(e, standard_error=math.sqrt(v), df=total) for e, v in zip(estimates, variances, strict=True)
    ]


def _inverse_trigamma(value: float) -> float:
    """The y with trigamma(y) = value > 0, by Newton's method on its reciprocal."""
    y = 0.5 + 1 / value
    for _ in range(50):
        trigamma = float(polygamma(1, y))
        step = trigamma * (1 - trigamma / value) / float(polygamma(2, y))
        y += step
        if abs(step) < 1e-10 * y:
            break
    return y
