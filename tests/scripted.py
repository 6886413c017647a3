"""Scripted disturbance for tests of the harness."""

from __future__ import annotations

from flashperf.disturbance import Disturbance


class ScriptedProbe:
    """Reports one more involuntary switch at the given readings (two a sample)."""

    def __init__(self, at: set[int]) -> None:
        self.at, self.reading, self.switches = at, 0, 0

    def read(self) -> Disturbance:
        self.switches += self.reading in self.at
        self.reading += 1
        return Disturbance(involuntary=self.switches)
