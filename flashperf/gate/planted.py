"""Slowdowns of a known size, planted into one side of a pair: the gate is tested on what it should find.

A call and its extra work are one native sequence, on the other side too (with no extra work), so that both sides
are entered in the same way.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from flashperf import _native
from flashperf.dtypes import aligned_empty
from flashperf.errors import UserError
from flashperf.native import prepare
from flashperf.suggest import unknown_name

Call = Callable[[], object]
KINDS = ("delay", "touch")
_FLOATS = 64
_MOST_TOUCHED = 1 << 20


def planted(kind: str, seconds: float) -> Callable[[Call], Call]:
    """What makes a call take ``seconds`` longer: arithmetic in registers, or bytes read and written.

    The amount is calibrated against the fastest of many tries. Raises UserError for an unknown kind.
    """
    if kind not in KINDS:
        raise UserError(unknown_name("kind of slowdown", kind, KINDS))
    extra = _extra(kind, seconds) if seconds > 0 else []

    def slowed(call: Call) -> Call:
        if isinstance(call, _native.Call):
            return _native.Sequence([call, *extra])

        def both() -> None:
            call()
            for one in extra:
                one()

        return both

    return slowed


def _extra(kind: str, seconds: float) -> list[Any]:
    if kind == "delay":
        per_pass_s = (_fastest_s(_delay(2000)) - _fastest_s(_delay(0))) / 2000
        return [_delay(max(0, round(seconds / per_pass_s) - 1))]
    floats = 1 << 12
    for _ in range(3):  # time is not in proportion to bytes: caches
        floats = int(np.clip(floats * seconds / _fastest_s(_touch(floats)), 16, _MOST_TOUCHED))
    return [_touch(floats)]


def _delay(passes: int) -> Any:
    x, y = _array(_FLOATS), _array(_FLOATS)
    return prepare("canary_compute", x, y, passes=passes)


def _touch(floats: int) -> Any:
    return prepare("canary_bandwidth", _array(floats), _array(floats))


def _array(floats: int) -> np.ndarray:
    array = aligned_empty((floats,), "f32")
    array[...] = 1
    return array


def _fastest_s(call: Call, tries: int = 30) -> float:
    best = float("inf")
    for _ in range(tries):
        begin = time.perf_counter_ns()
        call()
        best = min(best, (time.perf_counter_ns() - begin) * 1e-9)
    return best
