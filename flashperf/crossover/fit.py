"""Fits behind a crossover: robust polynomials, one per worker, and t statistics over workers. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import nnls

from flashperf.stats import t_quantile

CONFIDENCE = 0.95
HUBER_K = 1.5  # in units of the scale: 96 % as efficient as least squares on normal noise (Huber 1964)
ITERATIONS = 6
_MAD_TO_SD = 1.4826  # of a normal distribution


def t_statistics(values: np.ndarray) -> np.ndarray:
    """Mean over workers / its standard error, for values of shape (workers, n); +-inf without any spread."""
    mean = values.mean(axis=0)
    error = values.std(axis=0, ddof=1) / math.sqrt(values.shape[0])
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(error > 0, mean / error, np.sign(mean) * math.inf)


def confident_signs(t: np.ndarray, workers: int) -> np.ndarray:
    """1 or -1 where |t| exceeds the two-sided 95 % quantile, else 0."""
    return np.where(np.abs(t) > t_quantile(CONFIDENCE, workers - 1), np.sign(t), 0).astype(int)


def huber_quadratics(x: ArrayLike, blocks: np.ndarray, degree: int = 2) -> np.ndarray:
    """A polynomial in ``x`` [sizes] through the blocks of each worker, shape (workers, sizes, blocks).

    Least squares, reweighted ITERATIONS times by Huber's weights on the worker's own scale (from the median of
    the absolute residuals). Returns coefficients, lowest power first, shape (workers, degree + 1); the degree is
    lowered where there are too few sizes for it.
    """
    workers, sizes, repeats = blocks.shape
    degree = min(degree, sizes - 1)
    design = np.repeat(
        np.vander(np.asarray(x, dtype=np.float64), degree + 1, increasing=True), repeats, axis=0
    )
    y = blocks.reshape(workers, sizes * repeats)
    weights = np.ones_like(y)
    tiny = 1e-12 * (1 + np.abs(y).max())
    coefficients = np.empty((workers, degree + 1))
    for _ in range(ITERATIONS):
        weighted = weights[:, :, None] * design
        normal = weighted.transpose(0, 2, 1) @ design
        right = (weights * y) @ design
        coefficients = np.linalg.solve(normal, right[:, :, None])[:, :, 0]
        residuals = np.abs(y - coefficients @ design.T)
        scale = _MAD_TO_SD * np.median(residuals, axis=1, keepdims=True) + tiny
        weights = np.minimum(1.0, HUBER_K * scale / np.maximum(residuals, tiny))
    return coefficients


@dataclass(frozen=True)
class CostFit:
    """seconds = fixed_s + per_unit_s * size, and the root mean square of the relative residuals."""

    fixed_s: float
    per_unit_s: float
    residual: float


def fit_cost(sizes: Sequence[int], seconds: Sequence[float]) -> CostFit:
    """The nearest straight line with no negative part, in relative distance: a description, nothing rests on it.

    Raises ValueError if there are fewer than two sizes or a time isn't positive.
    """
    n, times = np.asarray(sizes, dtype=np.float64), np.asarray(seconds, dtype=np.float64)
    if n.size < 2 or n.shape != times.shape or not (times > 0).all():
        raise ValueError("a line needs two sizes or more, with a positive time for each")
    design = np.stack([1 / times, n / times], axis=1)
    (fixed, per_unit), _ = nnls(design, np.ones_like(times))
    residual = float(np.sqrt(np.mean((design @ [fixed, per_unit] - 1) ** 2)))
    return CostFit(float(fixed), float(per_unit), residual)
