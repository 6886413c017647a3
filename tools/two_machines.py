"""Prints the same runs on two machines side by side, as Markdown; docs/machines.md shows it.

    python tools/two_machines.py results/A results/B

Each folder holds explain-a.jsonl and claims.jsonl. Of the claims, those are printed whose verdicts differ, or whose
ratios do by more than a fifth and both intervals.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from flashperf.claims.analysis import Judged, read_report
from flashperf.explain import replay
from flashperf.records import Interval
from flashperf.report.numbers import bracketed
from flashperf.report.two_runs import Change, compare_runs

APART = 1.2  # as a factor


def main() -> None:
    """Both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folders", nargs=2, type=Path, metavar="DIR")
    first, second = parser.parse_args().folders
    explain_table(first, second)
    print()
    claims_table(first, second)


def explain_table(first: Path, second: Path) -> None:
    """Every share, and what it is on the second machine over what it is on the first."""
    runs = [replay(folder / "explain-a.jsonl") for folder in (first, second)]
    found = compare_runs(*runs)
    levels = dict(runs[0].flash)
    print(f"| Flash A | {' | '.join(run.environment.device for run in runs)} | second / first |")
    print("|---|---|---|---|")
    for change in found.shares:
        was = f"{change.name} ({runs[0].standard[change.name]} → {levels[change.name]})"
        print(f"| {was} | {_cells(change)} |")
    print(f"| **total** | {_cells(found.total)} |")
    print()
    print("Instruction sets of the kernels: " + "; ".join(_level(run.environment.isa) for run in runs) + ".")


def claims_table(first: Path, second: Path) -> None:
    """The claims that come out otherwise on the other machine."""
    reports = [read_report(folder / "claims.jsonl") for folder in (first, second)]
    others = {one.claim.id: one for one in reports[1].judged}
    devices = [report.environment.device for report in reports]
    print(f"| claim | measured as | {' | '.join(devices)} |")
    print("|---|---|---|---|")
    for one in reports[0].judged:
        other = others.get(one.claim.id)
        if other and (one.verdict.state != other.verdict.state or _apart(one.measured, other.measured)):
            print(f"| {one.claim.id} | {one.claim.how} | {_said(one)} | {_said(other)} |")


def _said(one: Judged) -> str:
    return f"{_text(one.measured)} {one.verdict.state}"


def _cells(change: Change) -> str:
    return " | ".join(_text(interval) for interval in (change.before, change.after, change.ratio))


def _text(interval: Interval | None) -> str:
    return bracketed(interval) if interval else "-"


def _apart(a: Interval | None, b: Interval | None) -> bool:
    """Whether two ratios differ by more than APART, and by more than both intervals."""
    if not a or not b:
        return False
    return max(a.value, b.value) > APART * min(a.value, b.value) and (a.high < b.low or b.high < a.low)


def _level(isa: tuple[str, ...]) -> str:
    return next((name.removeprefix("kernels:") for name in isa if name.startswith("kernels:")), "unknown")


if __name__ == "__main__":
    main()
