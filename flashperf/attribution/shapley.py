"""Exact Shapley values of a set function given on all 2^k sets."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike


def signs(masks: ArrayLike, k: int) -> np.ndarray:
    """x in {-1, +1}^k of each mask, shape (n, k) for masks of shape (n,): +1 where switch i is at flash."""
    return 2.0 * (np.asarray(masks, dtype=np.int64)[:, None] >> np.arange(k) & 1) - 1


def shapley(log_time_of_mask: ArrayLike) -> np.ndarray:
    """Shapley values of every switch, shape (k, ...), from log times of all masks, shape (2**k, ...).

    Bit i of the index is switch i. The values sum to log T(all) - log T(none) (L. S. Shapley, A value for
    n-person games, 1953). Costs k 2^k. Raises ValueError if the length is not a power of two.
    """
    values = np.asarray(log_time_of_mask, dtype=np.float64)
    k = values.shape[0].bit_length() - 1 if values.ndim else -1
    if k < 0 or values.shape[0] != 1 << k:
        raise ValueError(f"a set function has 2**k values on axis 0, not shape {values.shape}")
    masks = np.arange(1 << k)
    size = sum((masks >> i & 1 for i in range(k)), np.zeros_like(masks))
    weight_of_size = np.array([1 / (k * math.comb(k - 1, s)) for s in range(k)])
    result = np.empty((k, *values.shape[1:]))
    for i in range(k):
        without = masks[masks >> i & 1 == 0]
        gain = values[without | 1 << i] - values[without]
        result[i] = np.tensordot(weight_of_size[size[without]], gain, axes=1)
    return result
