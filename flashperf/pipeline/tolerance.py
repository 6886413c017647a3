"""When the pipeline's logits count as right.

The logits of a mixture are compared with a float64 pass over the same bytes by their signal-to-noise ratio. Where
operands are rounded to a short format with unit roundoff u, the independent errors of a sum's terms average out
and the logits keep an SNR of about -20 log10(u). In f32 nothing is rounded to less than what sums are kept in, and
the rounding of some forty sums in series counts: -20 log10(u sqrt(40)). The limit stands 16 dB below, since split
passes round what they hand on. An indexing or masking fault leaves a few dB, whatever the format.
"""

from __future__ import annotations

import math

import numpy as np

from flashperf.dtypes import UNIT_ROUNDOFF
from flashperf.pipeline.switches import Levels, precision_of
from flashperf.records import Check

_SUMS_IN_SERIES = 40.0  # that a logit has been through in the small model
_MARGIN_DB = 16.0
#: Steps of 1/127 of a row's absmax; a row's rms is about a third of its absmax, so the error is larger than in a float.
_INT8_ROUNDOFF = 3.0 / 254.0


def limit_db(levels: Levels) -> float:
    """Smallest SNR in dB that the logits of a mixture may have."""
    precision = precision_of(levels)
    rounded = precision if precision in ("f32", "f16") else "bf16"
    roundoff = max(UNIT_ROUNDOFF[rounded], UNIT_ROUNDOFF["f32"] * math.sqrt(_SUMS_IN_SERIES))
    if levels["quantization"] != "none":
        roundoff = max(roundoff, _INT8_ROUNDOFF)
    return -20 * math.log10(roundoff) - _MARGIN_DB


def check_logits(got: np.ndarray, reference: np.ndarray, levels: Levels) -> Check:
    """Logits [..., vocab] against float64 ones of the same shape; ``limit`` is in dB."""
    limit = limit_db(levels)
    error = np.abs(got - reference)
    finite = np.isfinite(error)
    worst = np.unravel_index(int(np.argmax(np.where(finite, error, np.inf))), error.shape)
    noise = float(np.mean(np.where(finite, error, 0.0) ** 2))
    snr = 10 * math.log10(float(np.mean(reference**2)) / noise) if noise else math.inf
    where = tuple(int(i) for i in worst)
    reason = ""
    if not finite.all():
        reason = f"not finite at step {where[0]}, task {where[1]}, byte {where[2]}"
    elif snr < limit:
        reason = f"SNR {snr:.1f} dB, limit {limit:.1f} dB; worst at step {where[0]}, task {where[1]}, byte {where[2]}"
    worst_error = float(error[worst])
    relative = worst_error / max(abs(float(reference[worst])), 1e-30)
    return Check(not reason, worst_error, relative, snr, where, limit, reason, "logits")
