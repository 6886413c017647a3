"""The phases of an explanation of anybody's pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flashperf.attribution import SwitchLevels
from flashperf.errors import UserError
from flashperf.explain.run import Phases
from flashperf.workers import WorkerPool


class FactoryPhases(Phases):
    """A user's factory: its mixtures are timed as they are, if their results are those of Standard."""

    subject = "flashperf.explain.factory:FactorySubject"

    def __init__(
        self, target: str, standard: Mapping[str, str], flash: Mapping[str, str], **common: Any
    ) -> None:
        self.target = target
        names = dict.fromkeys([*standard, *flash])
        switches = []
        for name in names:
            missing = "standard" if name not in standard else "flash" if name not in flash else ""
            if missing:
                raise UserError(f"switch {name!r} has no {missing} level: give it in both")
            active = standard[name] != flash[name]
            switches.append(SwitchLevels(name, standard[name], flash[name], active))
        if not switches:
            raise UserError("nothing to explain: give at least one switch=level for --standard and --flash")
        super().__init__(switches, **common)
        self.options = {"target": target, "standard": dict(standard)}

    def describe(self) -> dict[str, Any]:
        return {"subject": self.target, "switches": self.switches}

    def isolate(self, pool: WorkerPool) -> None:
        """Nothing to time; note what the subject has to say."""
        for text in pool.workers[0].call("remarks"):
            self.writer.write("note", text=text)
