"""Sequences of unequal length that lie one after another: how long each is, and where it begins."""

from __future__ import annotations

import numpy as np

from flashperf.errors import UserError

_SPREAD = 1.0  # of the logarithm of a length: requests of a chat or sentences of a corpus vary about as much


def impossible(count: int, total: int, longest: int) -> str:
    """Why no ``lengths`` exist for these; empty if they do."""
    if longest + count - 1 <= total <= count * longest:
        return ""
    return f"{count} sequences of 1 to {longest} can't have {total} elements, one of them the longest"


def lengths(seed: int, count: int, total: int, longest: int) -> np.ndarray:
    """``count`` lengths, int64, each at least 1, of log-normal spread: they sum to ``total``, one is ``longest``.

    Raises UserError if no such lengths exist.
    """
    if problem := impossible(count, total, longest):
        raise UserError(problem)
    rng = np.random.default_rng([seed, count, total, longest])
    weights = rng.lognormal(0.0, _SPREAD, count)
    first = int(weights.argmax())
    low, high = 0.0, total / weights.min()
    for _ in range(60):  # the scale at which the lengths, limited to 1 and longest, come out near the total
        middle = (low + high) / 2
        low, high = (
            (middle, high) if _scaled(weights, middle, longest, first).sum() < total else (low, middle)
        )
    found = _scaled(weights, low, longest, first)
    while missing := total - int(found.sum()):
        step = 1 if missing > 0 else -1
        room = (found < longest) if step > 0 else (found > 1)
        room[first] = False
        chosen = rng.permutation(np.flatnonzero(room))[: abs(missing)]
        found[chosen] += step
    return found


def _scaled(weights: np.ndarray, scale: float, longest: int, first: int) -> np.ndarray:
    found = np.clip(np.rint(weights * scale), 1, longest).astype(np.int64)
    found[first] = longest
    return found


def starts(lengths_: np.ndarray) -> np.ndarray:
    """Where each sequence begins, and the end of the last: int32 [count + 1]."""
    return np.concatenate([[0], np.cumsum(lengths_)]).astype(np.int32)
