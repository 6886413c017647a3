"""Two callables of a user: where they cross, in real processes, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flashperf.crossover import crossover, replay
from flashperf.crossover.result import CrossoverResult
from flashperf.errors import UserError
from flashperf.problem import WrongResult


def quick(x: np.ndarray) -> np.ndarray:
    return x * 2.0


def slow(x: np.ndarray) -> np.ndarray:
    return np.array([value * 2.0 for value in x])


def wrong_from_eight(x: np.ndarray) -> np.ndarray:
    return x * (2.0 if x.size < 8 else 3.0)


def ramp(size: int) -> tuple[np.ndarray]:
    return (np.arange(1, size + 1, dtype=np.float64),)


def real(other: Callable[..., Any], **options: Any) -> CrossoverResult:
    return crossover(quick, other, ramp, low=1, high=300, budget_s=20.0, processes=4, **options)


@pytest.mark.slow
def test_two_callables_cross_in_real_processes(tmp_path: Path) -> None:
    result = real(slow, axis="elements", record=tmp_path / "r.jsonl")
    assert result.names == ("quick", "slow")
    assert result.finding.scan[-1].sign == 1
    assert replay(tmp_path / "r.jsonl")[1].finding == result.finding


@pytest.mark.slow
def test_a_callable_that_is_wrong_at_some_size_is_not_timed_there() -> None:
    with pytest.raises((WrongResult, UserError), match=r"(?s)at size \d+.*wrong result"):
        real(wrong_from_eight)


def test_callables_are_refused_in_one_line() -> None:
    with pytest.raises(UserError, match="crossover takes functions for a, b and inputs"):
        crossover(quick, slow, 3)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="not 5:5"):
        crossover(quick, slow, ramp, low=5, high=5)
    with pytest.raises(UserError, match="4 processes or more"):
        crossover(quick, slow, ramp, processes=2)
    for axis in ("my rows", "if", None):
        with pytest.raises(UserError, match="axis is the name of a variable"):
            crossover(quick, slow, ramp, axis=axis)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="not True:5"):
        crossover(quick, slow, ramp, low=True, high=5)
    with pytest.raises(UserError, match="must be positive"):
        crossover(quick, slow, ramp, budget_s=math.inf)
