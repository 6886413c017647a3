"""From measurements to a diagnosis: sign, size, mechanism, crossover, confidence, or why there is none. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from flashperf.cases.definition import OpenCase
from flashperf.cases.guards import Machine, first_reason
from flashperf.cases.measured import CaseMeasured, crossover
from flashperf.cases.rules import RULES, Finding
from flashperf.records import Interval

#: A mechanism must predict the difference within this factor to be named ...
FACTOR = 2.0
#: ... and within this one, with nothing else as near, for high confidence.
NEAR = 1.5

CANT_TELL = "can't tell"


@dataclass(frozen=True)
class Diagnosis:
    """What the suite says of a case.

    sign:       of the optimised path: "slower", "faster", "equal", "can't tell"
    ratio:      its time / the baseline's
    mechanism:  of the loss; "" where there is none, "can't tell" where none predicts it
    explained:  predicted / measured difference in seconds of that mechanism; nan where there is none
    confidence: "high", "medium", "low"
    by_exclusion: the mechanism was named because nothing else fits, not because it predicts the size
    """

    sign: str
    ratio: Interval
    mechanism: str
    explained: float
    because: str
    crossover: str
    confidence: str
    candidates: tuple[tuple[str, float], ...] = ()
    by_exclusion: bool = False


def diagnose(case: CaseMeasured) -> Diagnosis:
    """Name the mechanism whose prediction comes nearest to the measured difference.

    Where the optimised path is not slower there is no loss to explain. Two mechanisms that are equally near are
    both named, and the confidence is low. One that argues by exclusion is named only if none predicts.
    """
    pair = case.pair
    where = crossover(case.along(), case.axis).text
    if pair.sign != "slower":
        confidence = "low" if pair.sign == CANT_TELL else "high"
        return Diagnosis(pair.sign, pair.ratio.ratio, "", math.nan, "", where, confidence)
    findings = [found for rule in RULES if (found := rule(case)) is not None]
    candidates = tuple((found.mechanism, found.predicted_s / pair.difference_s) for found in findings)
    named = _nearest(findings, pair.difference_s)
    if not named:
        because = _nothing_fits(findings, pair.difference_s)
        return Diagnosis(pair.sign, pair.ratio.ratio, CANT_TELL, math.nan, because, where, "low", candidates)
    best = named[0]
    explained = best.predicted_s / pair.difference_s
    return Diagnosis(
        sign=pair.sign,
        ratio=pair.ratio.ratio,
        mechanism=" or ".join(found.mechanism for found in named),
        explained=explained,
        because=best.because,
        crossover=where,
        confidence=_confidence(named, explained),
        candidates=candidates,
        by_exclusion=best.by_exclusion,
    )


def _nearest(findings: list[Finding], difference_s: float) -> list[Finding]:
    """Those within FACTOR, nearest first: all that are as near as the first; those by exclusion only without others."""
    within = [f for f in findings if f.predicted_s > 0 and _distance(f, difference_s) <= math.log(FACTOR)]
    direct = sorted((f for f in within if not f.by_exclusion), key=lambda f: _distance(f, difference_s))
    if not direct:
        return within[:1]
    return [
        f for f in direct if _distance(f, difference_s) <= _distance(direct[0], difference_s) + math.log(1.1)
    ]


def _distance(finding: Finding, difference_s: float) -> float:
    return abs(math.log(finding.predicted_s / difference_s))


def _confidence(named: list[Finding], explained: float) -> str:
    if len(named) > 1:
        return "low"
    near = abs(math.log(explained)) <= math.log(NEAR)
    return "high" if near and not named[0].by_exclusion else "medium"


def _nothing_fits(findings: list[Finding], difference_s: float) -> str:
    if not findings:
        return "nothing that was counted or timed apart differs between the paths"
    parts = [f"{found.mechanism} predicts {found.predicted_s / difference_s:.0%} of it" for found in findings]
    return "no mechanism predicts the difference within a factor of two: " + ", ".join(parts)


@dataclass(frozen=True)
class Outcome:
    """A case on this machine: its diagnosis beside what the report leads one to expect.

    state: "as reported", "not reproduced", "does not apply", "can't tell", "not measured"; ``why`` says more.
    """

    state: str
    why: str
    diagnosis: Diagnosis | None = None


def outcome(case: OpenCase, machine: Machine, measured: CaseMeasured | None, missing: str = "") -> Outcome:
    """Judge a case: guards first, then the diagnosis against the expectation. ``missing``: why there is nothing."""
    if measured is None:
        return Outcome("not measured", missing or "the budget ended before it")
    found = diagnose(measured)
    elsewhere = first_reason(case.expectation.where, machine)
    if elsewhere:
        return Outcome("does not apply", elsewhere, found)
    if found.sign == CANT_TELL:
        return Outcome(CANT_TELL, measured.pair.ratio.reason, found)
    if found.sign != case.expectation.sign:
        return Outcome("not reproduced", f"{case.optimised} is {found.sign} here", found)
    if case.expectation.mechanism not in found.mechanism.split(" or "):
        return Outcome("as reported", f"in sign; the mechanism: {found.mechanism or 'none'}", found)
    return Outcome("as reported", "", found)
