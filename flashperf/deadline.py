"""Wall time left of a budget."""

from __future__ import annotations

import time
from collections.abc import Callable


class Deadline:
    """Wall time left of a budget that began when the program did."""

    def __init__(
        self, budget_s: float, began: float | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock, self.budget_s = clock, budget_s
        self.began = clock() if began is None else began

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return self._clock() - self.began

    @property
    def left_s(self) -> float:
        """Seconds left; negative when overdrawn."""
        return self.budget_s - self.elapsed_s
