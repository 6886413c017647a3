"""What the isolated kernels predict for the shares: T^(S) = h + sum of counts x isolated times.

A dry run of mixture S counts its calls; the same calls are timed in isolation. What Standard takes beyond its
calls is the host remainder h, found once and held constant. The predicted share is the Shapley value of
log T^, exactly the computation of the measured share, so that the remainder of each switch,
unexplained = share - predicted in log units, has a meaning: measured total = product of predicted x product
of unexplained. (Isolated difference x calls, switch by switch, is no such split: the product of the parts
misses even the total of a pipeline whose times simply add up.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from flashperf.attribution.counts import Call, CallCounts, call_counts
from flashperf.attribution.shapley import shapley
from flashperf.records import Interval
from flashperf.stats import t_interval

Counts = CallCounts | Mapping[int, Mapping[Any, float]]


class MissingCallError(ValueError):
    """A dry run counted a call that was never timed in isolation; ``call`` is it."""

    def __init__(self, call: Call, worker: int) -> None:
        super().__init__(f"no isolated time for the call {call!r} in worker {worker}")
        self.call = call


@dataclass(frozen=True)
class Prediction:
    """Predicted shares of P workers, in log units.

    shares (P, k): Shapley values of log T^, in the order of ``workers``
    host_s: the host remainder h in seconds, t over workers; below zero it is a model error
    kernel_fraction: share of T(Standard) that its isolated calls account for, mean over workers
    """

    workers: tuple[int, ...]
    shares: np.ndarray
    host_s: Interval
    kernel_fraction: float

    def of(self, workers: tuple[int, ...]) -> np.ndarray:
        """The shares of these workers, shape (P, k). Raises ValueError naming those without a prediction."""
        missing = [str(worker) for worker in workers if worker not in self.workers]
        if missing:
            raise ValueError(f"no isolated times from worker {', '.join(missing)}")
        return self.shares[[self.workers.index(worker) for worker in workers]]

    @property
    def model_error(self) -> str:
        """Why the prediction can't be right: its calls take longer than the whole. Empty if they don't."""
        if self.host_s.high >= 0:
            return ""
        value, low, high = (f"{1e3 * x:.3g}" for x in (self.host_s.value, self.host_s.low, self.host_s.high))
        return (
            f"isolated calls add up to {self.kernel_fraction:.0%} of Standard, which leaves {value} ms "
            f"({low} to {high}) for the host"
        )


def predict(
    counts: Counts,
    isolated: Mapping[int, Mapping[Any, float]],
    standard: Mapping[int, float],
    k: int,
    confidence: float = 0.95,
) -> Prediction:
    """Predicted shares for k active switches.

    counts: for each of the 2**k masks, how often it makes each call (calls it does not make may be left out)
    isolated: worker -> call -> seconds of that call by itself; standard: worker -> seconds of Standard
    Use the same cache state throughout; warm and evicted caches give two predictions that bracket the truth.

    Raises MissingCallError for a counted call without a time, ValueError for a mask without counts, a worker
    on one side only, or a mixture whose predicted time is not positive.
    """
    if isolated.keys() != standard.keys() or not standard:
        raise ValueError(f"isolated times of workers {sorted(isolated)} but Standard of {sorted(standard)}")
    workers = tuple(sorted(standard))
    counted = call_counts(counts, k)
    times = np.empty((len(counted.calls), len(workers)))
    for column, worker in enumerate(workers):
        for row, call in enumerate(counted.calls):
            if call not in isolated[worker]:
                raise MissingCallError(call, worker)
            times[row, column] = isolated[worker][call]
    whole = np.array([standard[worker] for worker in workers])
    kernels = np.asarray(counted.matrix @ times)
    host = whole - kernels[0]
    predicted = kernels + host
    if not (predicted > 0).all():
        mask = int(np.argmin(predicted.min(axis=1)))
        raise ValueError(
            f"mixture {mask:0{k}b} is predicted to take {predicted.min():.3g} s: its calls do not fit"
        )
    fraction = float((kernels[0] / whole).mean())
    return Prediction(workers, shapley(np.log(predicted)).T, t_interval(host, confidence), fraction)
