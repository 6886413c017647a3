"""What emptied caches still held: plain loads after the same routine, beside the memory roof. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flashperf.records import Interval
from flashperf.roofs.model import DRAM, MEMORY, Ceiling, Roofs
from flashperf.stats import ratio_interval


@dataclass(frozen=True)
class ColdCheck:
    """Bytes/s of plain loads from emptied caches, one value of each process; ``n_bytes`` is how many were loaded."""

    n_bytes: int
    per_process: tuple[float, ...]

    def share(self, roofs: Roofs) -> Interval | None:
        """That rate over the memory roof of the same kernel with one thread; None where there is no such roof."""
        roof = _load_roof(roofs)
        if roof is None or not self.per_process:
            return None
        return ratio_interval(np.log(np.array(self.per_process) / roof.value))


def left_in_caches(check: ColdCheck | None, roofs: Roofs) -> str:
    """How cold the caches were, in one sentence that claims no more than was measured."""
    share, roof = check.share(roofs) if check else None, _load_roof(roofs)
    if check is None or share is None or roof is None:
        return "what they still held was not measured"
    percent = f"{100 * share.value:.0f} % [{100 * share.low:.0f}–{100 * share.high:.0f}]"
    said = f"from caches emptied in the same way, plain loads came at {percent} of the {roof.name} load roof"
    if share.low > roof.interval.high / roof.value:
        return f"{said}: they still held a part"
    return f"{said}: no sign that they still held a part"


def _load_roof(roofs: Roofs) -> Ceiling | None:
    return next((c for c in roofs.of(MEMORY, 1) if (c.name, c.how) == (DRAM, "load")), None)
