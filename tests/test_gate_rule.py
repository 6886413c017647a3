"""The decision rule: closed forms, Holm, bounds that agree with verdicts, error rates and power by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from flashperf.gate.rule import (
    ALPHA,
    CANT_TELL,
    EQUIVALENT,
    FASTER,
    NO_SLOWER,
    SLOWER,
    Judged,
    judge,
    moderated,
)
from flashperf.stats import Estimate, mean_of

D = 0.02


def bench(
    value: float, error: float = 0.003, name: str = "a", processes: int = 10, doubt: str = ""
) -> Judged:
    """A bench of a log ratio ``value`` with standard error ``error``."""
    return Judged(name, Estimate(value, error, processes - 1), D, processes, doubt)


@pytest.mark.parametrize(
    "value, error, word",
    [
        (0.05, 0.003, SLOWER),
        (0.0, 0.003, EQUIVALENT),
        (-0.05, 0.003, FASTER),
        (-0.015, 0.012, NO_SLOWER),
        (0.02, 0.003, CANT_TELL),
        (0.0, 0.03, CANT_TELL),
    ],
)
def test_one_bench_gets_the_word_that_its_interval_says(value: float, error: float, word: str) -> None:
    (verdict,) = judge([bench(value, error)])
    assert verdict.verdict == word
    assert verdict.passed == (word in (FASTER, EQUIVALENT, NO_SLOWER))
    assert verdict.ratio.value == pytest.approx(math.exp(value))


def test_p_values_are_those_of_the_one_sided_t_test() -> None:
    (verdict,) = judge([bench(0.03, 0.004)])
    t = (0.03 - math.log1p(D)) / 0.004
    assert verdict.p_slower == pytest.approx(scipy_stats.t.sf(t, 9))
    assert verdict.p_no_slower == pytest.approx(scipy_stats.t.cdf(t, 9))


def test_holm_is_over_all_benches_and_no_slower_is_not_adjusted() -> None:
    t = float(scipy_stats.t.isf(0.02, 9))
    slowish = bench(math.log1p(D) + t * 0.003, 0.003)
    alone, among = judge([slowish])[0], judge([slowish, bench(0.0, name="b"), bench(0.0, name="c")])[0]
    assert alone.p_slower == pytest.approx(0.02)
    assert alone.verdict == SLOWER
    assert among.p_slower == pytest.approx(0.06)
    assert among.verdict == CANT_TELL
    fastish = [bench(math.log1p(D) - t * 0.003, 0.003, name) for name in "abc"]
    assert [v.passed for v in judge(fastish)] == [True] * 3
    assert [v.verdict for v in judge(fastish, strict=True)] == [CANT_TELL] * 3


def test_bounds_agree_with_verdicts_whatever_the_numbers() -> None:
    rng = np.random.default_rng(5)
    seen = set()
    for _ in range(300):
        values = rng.normal(0.02, 0.02, 6)
        errors = rng.uniform(0.001, 0.01, 6)
        for verdict in judge(
            [bench(v, e, str(n)) for n, (v, e) in enumerate(zip(values, errors, strict=True))]
        ):
            seen.add(verdict.verdict)
            assert (verdict.verdict == SLOWER) == (verdict.bounds[0] > 1 + D)
            if verdict.verdict != SLOWER:
                assert verdict.passed == (verdict.bounds[1] < 1 + D)
    assert seen == {SLOWER, FASTER, EQUIVALENT, NO_SLOWER, CANT_TELL}


def test_few_processes_and_doubts_give_no_verdict_but_count_in_the_family() -> None:
    few, doubted = judge([bench(0.5, 0.001, processes=5), bench(0.5, 0.001, "b", doubt="the machine moved")])
    assert (few.verdict, few.reason) == (CANT_TELL, "5 processes, at least 6 are needed")
    assert (doubted.verdict, doubted.reason) == (CANT_TELL, "the machine moved")
    one = judge([Judged("a", Estimate(0.5, math.inf, 0), D, 1)])[0]
    assert one.reason.startswith("1 process, ")
    assert one.bounds == (0.0, math.inf)


def test_reasons_say_what_would_settle_it() -> None:
    (more,) = judge([bench(0.0, 0.012)])
    assert more.reason.startswith("spread 3.8% between processes; about ")
    (at,) = judge([bench(math.log1p(D), 0.003)])
    assert "lies at the threshold itself" in at.reason
    (noisy,) = judge([bench(0.0, 0.2)])
    assert "quieter machine" in noisy.reason


def test_moderated_shrinks_variances_to_limmas_values() -> None:
    """Reference values: equations of Smyth (2004), solved for d0 and s0 with scipy's root finder."""
    from scipy.optimize import brentq
    from scipy.special import digamma, polygamma

    errors = np.array([0.002, 0.004, 0.009, 0.003, 0.02, 0.006, 0.001, 0.012])
    df = 9.0
    e = np.log(errors**2) - digamma(df / 2) + math.log(df / 2)
    excess = e.var(ddof=1) - polygamma(1, df / 2)
    d0 = 2 * brentq(lambda y: polygamma(1, y) - excess, 1e-3, 1e3)
    s0 = math.exp(e.mean() + digamma(d0 / 2) - math.log(d0 / 2))
    got = moderated([Estimate(0.0, float(x), df) for x in errors])
    want = np.sqrt((d0 * s0 + df * errors**2) / (d0 + df))
    assert [g.standard_error for g in got] == pytest.approx(want.tolist(), rel=1e-6)
    assert got[0].df == pytest.approx(min(d0 + df, df * 8))
    few = [Estimate(0.0, 0.01, df)] * 5
    assert moderated(few) == few
    same = moderated([Estimate(0.0, 0.01, df)] * 6)
    assert {round(g.standard_error, 6) for g in same} == {round(same[0].standard_error, 6)}


def simulated(
    effect: float, trials: int, pairs: int = 10, benches: int = 12, sd: float = 0.008
) -> np.ndarray:
    """Words of ``trials`` suites of which every bench is slowed by ``effect``, shape (trials, benches)."""
    rng = np.random.default_rng(11)
    data = rng.normal(math.log1p(effect), sd, (trials, benches, pairs))
    return np.array(
        [
            [
                v.verdict
                for v in judge([Judged(str(n), mean_of(row), D, pairs) for n, row in enumerate(suite)])
            ]
            for suite in data
        ]
    )


@pytest.mark.parametrize("effect", [0.0, D])
def test_a_suite_cries_wolf_in_at_most_five_percent(effect: float) -> None:
    words = simulated(effect, 400)
    slower = words == SLOWER
    assert slower.any(axis=1).mean() <= ALPHA + 0.027  # 2.5 standard errors of 400
    assert slower.mean() <= 0.01


def test_what_is_slower_by_more_is_found_and_what_is_unchanged_is_certified() -> None:
    assert (simulated(0.05, 60) == SLOWER).mean() > 0.9
    assert np.isin(simulated(0.0, 60), [EQUIVALENT, NO_SLOWER, FASTER]).mean() > 0.99
