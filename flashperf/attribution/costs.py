"""A cost model of all mixtures, fitted to those that were run: it takes interactions out of the shares' scatter.

Complement pairs are blind to interactions of two switches, not of three: where one kernel replaces another
(INT8 makes the format of a float product irrelevant), a share of one worker scatters with the sets that it drew.
The calls of every mixture are known before it is run. So T^(S) = sum of counts x costs is fitted to the calls that
were timed, and only what the fit leaves is estimated by least squares; the Shapley values of log T^ are exact.
Nothing rests on the fit being right: a worker's fit comes from the others' calls alone, and what is taken off its
differences is log T^ less the shares of log T^, which has no shares (a control variate; for Shapley values: Witter,
Liu and Musco, Regression-adjusted Monte Carlo estimators for Shapley values, 2025).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from flashperf.attribution.counts import call_counts
from flashperf.attribution.design import Observation
from flashperf.attribution.prediction import Counts, MissingCallError

#: Of log(fitted / isolated) beside log(fitted / measured), before both are squared: an isolated time weighs a
#: hundredth of a measured one, so only what the runs don't determine stays near it.
_PENALTY = 0.1
_MOST_STEPS, _LEAST_STEP, _ENOUGH = 12, 1e-3, 1e-4
_LEAST_HOST = 0.02  # of the fastest mixture: where the fit of what no call accounts for begins, at least


class CostModel:
    """Seconds of all 2**k mixtures as sums of costs, each scaled by a factor that ``log_times`` fits.

    counts, isolated: as in ``predict``. Calls that every mixture makes in the same proportion are one cost.
    Raises MissingCallError for a counted call without a time, ValueError for a time of 0 or a mask without counts.
    """

    def __init__(self, counts: Counts, isolated: Mapping[int, Mapping[Any, float]], k: int) -> None:
        counted = call_counts(counts, k)
        calls = counted.calls
        logs = np.empty((len(isolated), len(calls)))
        for row, (worker, times) in enumerate(isolated.items()):
            for column, call in enumerate(calls):
                if call not in times:
                    raise MissingCallError(call, worker)
                if not times[call] > 0:
                    raise ValueError(f"the call {call!r} takes {times[call]} s by itself in worker {worker}")
                logs[row, column] = np.log(times[call])
        seconds = counted.matrix * np.exp(logs.mean(axis=0))
        group = _in_proportion(seconds)
        members = csr_array((np.ones(group.size), (np.arange(group.size), group)))
        self._costs = np.asarray((seconds @ members).todense())

    def log_times(self, observations: Iterable[Observation]) -> np.ndarray:
        """Fitted log seconds of all mixtures, shape (2**k,), from the calls of some."""
        masks = np.array([mask for o in observations for mask in o.group.masks])
        logs = np.log([seconds for o in observations for seconds in o.seconds])
        run, index = np.unique(masks, return_inverse=True)
        number = np.bincount(index)
        measured = np.bincount(index, logs) / number
        fastest = int(np.argmin(measured))
        least = np.exp(measured[fastest])
        host = max(least - self._costs[run[fastest]].sum(), _LEAST_HOST * least)
        costs = np.column_stack([self._costs, np.full(len(self._costs), host)])
        return np.log(costs @ np.exp(_log_factors(costs[run], measured, np.sqrt(number))))


def _in_proportion(columns: csr_array) -> np.ndarray:
    """A number per column, the same for columns of which one is a multiple of the other; all are >= 0.

    Columns are told apart by two random means of their rows, weighted with the columns.
    """
    weights = np.random.default_rng(0).random((2, columns.shape[0]))
    found = (weights @ columns) / columns.sum(axis=0)
    return np.unique(np.round(found, 12), axis=1, return_inverse=True)[1].ravel()


def _log_factors(costs: np.ndarray, measured: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Log factors of the costs by penalised least squares of logs: damped Gauss-Newton steps.

    costs (n, m) in seconds, measured (n,) log seconds, weight (n,).
    """
    factors = np.zeros(costs.shape[1])
    penalty = _PENALTY * np.eye(factors.size)

    def residuals(at: np.ndarray) -> np.ndarray:
        return np.append(weight * (np.log(costs @ np.exp(at)) - measured), _PENALTY * at)

    left = residuals(factors)
    for _ in range(_MOST_STEPS):
        parts = costs * np.exp(factors)
        slopes = np.vstack([weight[:, None] * parts / parts.sum(axis=1, keepdims=True), penalty])
        step, size = np.linalg.solve(slopes.T @ slopes, -slopes.T @ left), 1.0
        # A step so long that exp overflows leaves inf or nan, which is no less than before either.
        while not (after := residuals(factors + size * step)) @ after < left @ left and size > _LEAST_STEP:
            size /= 2
        gained = left @ left - after @ after
        if not gained > 0:
            break
        enough = gained < _ENOUGH * (left @ left)
        factors, left = factors + size * step, after
        if enough:
            break
    return factors
