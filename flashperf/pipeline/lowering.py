"""A program being put together: bound calls in segments, and the buffers that they use."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Any

from flashperf.dtypes import itemsize
from flashperf.pipeline.buffers import Buffers
from flashperf.pipeline.engine import Engine, PlannedCall
from flashperf.pipeline.storage import WeightStore
from flashperf.pipeline.streaming import StagedWeights


@dataclass
class Segment:
    """Calls of a stretch of a program, and copies that a second thread makes before them, while others run."""

    calls: list[PlannedCall] = field(default_factory=list)
    copies: list[PlannedCall] = field(default_factory=list)


class Lowering:
    """Collects the calls of a program, in segments.

    ``touched`` keeps, for every buffer that the program uses, the bytes of its largest shape. ``place`` is what
    programs have in common whose operators are alike (see ``once``): a step's shape and storage.
    """

    def __init__(
        self, engine: Engine, weights: WeightStore, buffers: Buffers, transfer: str, place: Hashable = None
    ) -> None:
        self.engine, self.buffers = engine, buffers
        self.weights = weights if transfer == "resident" else StagedWeights(weights, buffers, transfer, self)
        self.segments = [Segment()]
        self.touched: dict[tuple[str, str], int] = {}
        self._suffix = "@pool" if buffers.allocation == "fixed_pool" else ""
        memo = getattr(engine, "memo", None)
        self._memo = None if memo is None else memo.setdefault((place, transfer, buffers.allocation), {})

    @property
    def calls(self) -> list[PlannedCall]:
        """The calls of the segment that is being lowered."""
        return self.segments[-1].calls

    def begin(self, number: int) -> None:
        """A new segment: a layer, whose weights are copied in together where they are streamed."""
        self.segments.append(Segment())
        self.weights.begin(number)

    def bind(self, kernel: str, *arrays: Any, **scalars: float) -> PlannedCall:
        """Bind one kernel. The key says what else changes its time: a window, and where its arrays lie."""
        call = self.engine.prepare(kernel, *arrays, **scalars)
        suffix = f"@window={scalars['window']:g}{self._suffix}" if scalars.get("window") else self._suffix
        return replace(call, key=call.key + suffix) if suffix else call

    def emit(self, kernel: str, *arrays: Any, **scalars: float) -> None:
        """Bind one kernel and append it."""
        self.calls.append(self.bind(kernel, *arrays, **scalars))

    def buffer(self, name: str, shape: tuple[int, ...], dtype: str) -> Any:
        """An activation buffer, noted as one of this program's."""
        n_bytes = math.prod(shape) * itemsize(dtype)
        self.touched[name, dtype] = max(n_bytes, self.touched.get((name, dtype), 0))
        return self.buffers.get(name, shape, dtype)

    def once(self, key: tuple[Any, ...], lower: Callable[[], Any]) -> Any:
        """What ``lower`` returns. An engine that only records lowers what has the same key a single time.

        The key must hold all that the calls of ``lower`` depend on, but for the program's place and the levels
        of its transfer and allocation.
        """
        memo = self._memo
        if memo is None:
            return lower()
        segment, touched = self.segments[-1], self.touched
        known = memo.get(key)
        if known is None:
            calls, copies = len(segment.calls), len(segment.copies)
            self.touched = {}
            result = lower()
            known = memo[key] = (segment.calls[calls:], segment.copies[copies:], self.touched, result)
            self.touched = touched
        else:
            segment.calls.extend(known[0])
            segment.copies.extend(known[1])
        for name, n_bytes in known[2].items():
            touched[name] = max(n_bytes, touched.get(name, 0))
        return known[3]
