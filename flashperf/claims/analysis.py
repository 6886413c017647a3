"""From a record of ``flashperf claims`` to a verdict on every claim."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flashperf.claims.catalogue import claim_named
from flashperf.claims.definition import Claim, ScenarioTotal, Untestable
from flashperf.claims.judge import Verdict, judge
from flashperf.errors import UserError
from flashperf.records import Environment, Interval
from flashperf.scenarios.pairs import blocks_by, compared
from flashperf.store import from_json, read_records


@dataclass(frozen=True)
class Judged:
    """A claim, the ratio that was measured for it (None: none), and the verdict."""

    claim: Claim
    measured: Interval | None
    verdict: Verdict

    @property
    def command(self) -> str:
        """What shows it alone."""
        return f"flashperf claims {self.claim.id}"


@dataclass(frozen=True)
class ClaimsReport:
    """All claims of a run.

    stopped:  "done", "interrupted", or "killed" where the record has no end
    failures: what broke while measuring: a wrong kernel, a worker that died
    """

    judged: tuple[Judged, ...]
    environment: Environment
    seconds: float
    stopped: str
    failures: tuple[str, ...] = ()


def read_report(path: Path) -> ClaimsReport:
    """The report of a record. Raises UserError if it is none of ``flashperf claims``."""
    records = read_records(path)
    head, where = (next(records.of(kind), None) for kind in ("claims", "environment"))
    if head is None or where is None:
        raise UserError(f"{path} is not a record of flashperf claims")
    measured = _measured(records.lines)
    missing = {
        key: line["why"]
        for kind in ("skipped", "failure")
        for line in records.of(kind)
        for key in line["keys"]
    }
    end: Mapping[str, Any] = next(records.of("end"), {"seconds": math.nan, "stopped": "killed"})
    judged = tuple(_judged(claim_named(name), measured, missing) for name in head["ids"])
    return ClaimsReport(
        judged,
        from_json(Environment, where["environment"]),
        float(end["seconds"]),
        end["stopped"],
        tuple(dict.fromkeys(line["why"] for line in records.of("failure"))),
    )


def _measured(lines: tuple[dict[str, Any], ...]) -> dict[str, Interval]:
    """Ratios by the key of their source: of pairs from their blocks, of the rest as they were noted."""
    found = {line["key"]: from_json(Interval, line["interval"]) for line in lines if line["kind"] == "value"}
    for (key,), blocks in blocks_by(lines, "key").items():
        if len(blocks) >= 2:
            found[key] = compared(blocks).ratio
    return found


def _judged(claim: Claim, measured: Mapping[str, Interval], missing: Mapping[str, str]) -> Judged:
    if isinstance(claim.source, Untestable):
        return Judged(claim, None, judge(claim, None))
    ratio = measured.get(claim.source.key)
    if ratio is not None and isinstance(claim.source, ScenarioTotal):
        factor = claim.source.factor
        ratio = Interval(factor * ratio.value, factor * ratio.low, factor * ratio.high)
    return Judged(claim, ratio, judge(claim, ratio, missing.get(claim.source.key, "")))
