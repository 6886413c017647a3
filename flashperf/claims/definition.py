"""What a claim is: what a document says, which measurement tests it, and what it would have to give. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Pair:
    """Two variants of a mechanism, timed in pairs in several processes: time of ``other`` / time of ``base``."""

    mechanism: str
    base: str
    other: str
    sizes: Mapping[str, int | str] = field(default_factory=dict)
    dtype: str = "f32"

    @property
    def key(self) -> str:
        """What its measurement is called in the record; sizes are the mechanism's first of a bench if not given."""
        sizes = "".join(f" {name}={value}" for name, value in self.sizes.items())
        return f"{self.mechanism} {self.other} / {self.base}{sizes}"


@dataclass(frozen=True)
class ExplainMetric:
    """A row of the metrics of ``flashperf explain --flash PRESET``: Flash / Standard."""

    preset: str
    metric: str

    @property
    def key(self) -> str:
        """What its measurement is called in the record."""
        return f"explain {self.preset}: {self.metric}"


@dataclass(frozen=True)
class ExplainShare:
    """A switch on its own in ``flashperf explain --flash PRESET``: time with it at flash / Standard."""

    preset: str
    switch: str

    @property
    def key(self) -> str:
        """What its measurement is called in the record."""
        return f"explain {self.preset}: {self.switch} alone"


@dataclass(frozen=True)
class ScenarioTotal:
    """A total of a scenario, by the beginning of its name, times ``factor``."""

    scenario: str
    total: str
    factor: float = 1.0

    @property
    def key(self) -> str:
        """What its measurement is called in the record."""
        return f"scenario {self.scenario}: {self.total}"


@dataclass(frozen=True)
class HitRate:
    """The hit rate of a named GPU's L2 for ``other`` / for ``base``: simulated, hence exact, and no measurement."""

    mechanism: str
    base: str
    other: str
    gpu: str
    sizes: Mapping[str, int | str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """What its simulation is called in the record."""
        return f"L2 hits of {self.mechanism} {self.other} / {self.base} on {self.gpu}, simulated"


@dataclass(frozen=True)
class Untestable:
    """Nothing here can test it; why."""

    why: str


Source = Pair | ExplainMetric | ExplainShare | ScenarioTotal | HitRate | Untestable


@dataclass(frozen=True)
class Claim:
    """One statement of a document.

    id:        as in both lists of claims: A and a number, B and a number
    says:      what it says, retold
    how:       what is measured here instead of, or as, what it speaks of
    ratio:     the ratio that it gives, in the measurement's terms; None if it gives no size
    above:     whether it says that the measured ratio is above 1
    at_least:  whether ``ratio`` is a bound: anything beyond it reproduces the claim
    slip:      a mistake in the document's arithmetic; empty if there is none
    """

    id: str
    says: str
    source: Source
    how: str = ""
    ratio: float | None = None
    above: bool = True
    at_least: bool = False
    slip: str = ""
