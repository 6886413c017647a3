"""Attribution of a slowdown to switches: design of the runs, estimation, interactions, prediction. Pure.

The methods, and the simulations that chose them, are in docs/measuring.md.
"""

from flashperf.attribution.costs import CostModel
from flashperf.attribution.counts import CallCounts, call_counts
from flashperf.attribution.design import (
    Group,
    Observation,
    SwitchLevels,
    active_switches,
    confirmation_block,
    confirmation_groups,
    cycle_groups,
    pairs_per_cycle,
    runs_per_cycle,
)
from flashperf.attribution.estimate import WorkerEstimates, estimate_workers, standard_seconds
from flashperf.attribution.interactions import Candidate, confirm_interactions, screen_interactions
from flashperf.attribution.prediction import MissingCallError, Prediction, predict
from flashperf.attribution.shapley import shapley
from flashperf.attribution.summary import attribute, percent_is_defined, precise_enough, shares_within

__all__ = [
    "CallCounts",
    "Candidate",
    "CostModel",
    "Group",
    "MissingCallError",
    "Observation",
    "Prediction",
    "SwitchLevels",
    "WorkerEstimates",
    "active_switches",
    "attribute",
    "call_counts",
    "confirm_interactions",
    "confirmation_block",
    "confirmation_groups",
    "cycle_groups",
    "estimate_workers",
    "pairs_per_cycle",
    "percent_is_defined",
    "precise_enough",
    "predict",
    "runs_per_cycle",
    "screen_interactions",
    "shapley",
    "shares_within",
    "standard_seconds",
]
