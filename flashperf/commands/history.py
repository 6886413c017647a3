"""``flashperf history``: a bench over many saved runs, where it changed for good, as a table and a picture."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flashperf.errors import EXIT_OK, UserError

if TYPE_CHECKING:
    from flashperf.gate.history import History, Series

Place = Annotated[
    str, typer.Argument(metavar="DIR|GLOB", help="Saved runs, such as .benchmarks or 'runs/*.json'.")
]
Select = Annotated[
    str | None,
    typer.Option("-k", metavar="EXPRESSION", help="Only benches whose name matches, as in pytest."),
]
Plot = Annotated[Path | None, typer.Option(metavar="STEM", help="Draw STEM.svg and STEM.png.")]
Alert = Annotated[
    str | None,
    typer.Option(metavar="D%", help="Exit 10 if the last step of a bench made it slower by more than this."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def history(
    place: Place = ".benchmarks",
    select: Select = None,
    plot: Plot = None,
    alert: Alert = None,
    as_json: Json = False,
) -> int:
    """List benches over many saved runs.

    With the changes of level that last (three runs or more). Times are set against the canaries of each run
    where all runs have them, so that a slower machine isn't taken for slower code.
    """
    from flashperf.commands.compare import matches
    from flashperf.commands.selfcheck import counted
    from flashperf.gate.history import read_history
    from flashperf.gate.outcome import EXIT_CODES, parse_percent
    from flashperf.gate.rule import SLOWER
    from flashperf.progress import open_progress

    limit = parse_percent(alert, "alert") if alert is not None else None
    with open_progress(as_json) as progress:
        progress.phase("history", f"reading {place}")
        found = read_history(place, lambda name: select is None or matches(select, name), counted(progress))
    if not found.series:
        problem = found.problems[0] if found.problems else f"no bench matches -k {select!r}"
        raise UserError(problem)
    worse = [s for s in found.series if limit is not None and s.steps and s.steps[-1].factor > 1 + limit]
    if as_json:
        from flashperf.store import to_json

        print(json.dumps(to_json(found), indent=1, ensure_ascii=False))
    else:
        print_history(found)
    for series in worse:
        print(f"flashperf: {series.name} {step_text(series, len(series.steps) - 1)}", file=sys.stderr)
    if plot is not None:
        from flashperf.plots.history import history_plot

        for path in history_plot(found, plot):
            print(f"wrote {path}")
    return EXIT_CODES[SLOWER] if worse else EXIT_OK


def print_history(found: History) -> None:
    """A line a bench, its steps below it, then what was left out."""
    from flashperf.gate.text import percent, short_name
    from flashperf.units import seconds

    print(f"{found.runs} runs, {len(found.series)} benches; change: last run against the first")
    names = [short_name(series.name) for series in found.series]
    shown = [name if names.count(name) == 1 else s.name for name, s in zip(names, found.series, strict=True)]
    width = min(60, max(map(len, shown)))
    for name, series in zip(shown, found.series, strict=True):
        values = series.values
        change = percent(float(values[-1] / values[0]))
        against = " to canary" if series.relative else ""
        last = seconds(series.points[-1].median_s)
        print(f"{name:<{width}}  {len(values):>5} runs  {last:>8}  {change:>8}{against}")
        for number in range(len(series.steps)):
            print(f"{'':<4}{step_text(series, number)}")
    for problem in found.problems[:5]:
        print(problem)
    if len(found.problems) > 5:
        print(f"and {len(found.problems) - 5} more files that can't be read")
    if not found.can_find_steps:
        print("steps are not looked for: pip install 'flashperf[history]'")


def step_text(series: Series, number: int) -> str:
    """``+12.0 % since 2026-11-30 18:00 at 1a2b3c4d5e (0007_...json)``."""
    from flashperf.gate.text import percent

    step = series.steps[number]
    point = series.points[step.at]
    commit = f" at {point.commit[:10]}" if len(point.commit) >= 40 else ""
    return f"{percent(step.factor)} since {point.time[:16].replace('T', ' ')}{commit} ({point.run})"
