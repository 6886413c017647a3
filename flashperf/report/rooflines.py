"""Kernels under roofs as tables and sentences, for the terminal and the page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from flashperf.roofs.cold_check import left_in_caches
from flashperf.roofs.points import Point, RooflineRun
from flashperf.store import to_json
from flashperf.units import seconds

if TYPE_CHECKING:
    from rich.table import Table

#: How a picture's drawn roofs and the percentages beside it go together.
CHARGED = (
    "A drawn memory roof takes every byte from that level, read or written; a percentage charges a level only with "
    "the bytes that the caches inside it can't hold, and reads at the rate of loads alone: it can be larger or smaller "
    "than the distance to a line."
)


def place_of(point: Point, run: RooflineRun) -> dict[str, Any]:
    """Where a point lies, as plain JSON: seconds, rates, the fraction of its roof and the words for it."""
    return {
        "case": point.case_id,
        "cache": point.cache,
        "seconds": to_json(point.seconds),
        "placement": to_json(point.place(run.roofs)),
        "words": point.words(run.roofs),
    }


def notes(run: RooflineRun) -> list[str]:
    """Points above their roofs and why, how cold the caches were, what was left out, how busy the machine was."""
    said = [CHARGED, *_above(run)]
    states = sorted({point.cache for point in run.points if point.is_cold})
    if states:
        said.append(f"Cold caches: {left_in_caches(run.cold_check, run.roofs)}.")
    if states and states != ["cold"]:
        said.append(f"Cold caches are {', '.join(states)}: the last one is larger than what was swept.")
    said += [f"Left out: {text}." for text in run.left_out]
    if run.busy_reason:
        said.append(f"The machine was busy: {run.busy_reason}.")
    return said


def _above(run: RooflineRun) -> Iterator[str]:
    """The points above their roofs in groups of one reason."""
    above = [point for point in run.points if point.place(run.roofs).model_error]
    if not above:
        return
    for point in above:
        place = point.place(run.roofs)
        cache = "cold" if point.is_cold else "warm"
        yield f"Model error: {point.case_id} ({cache}) is {place.fraction_of_roof:.2f} x its {place.bound} roof."
    yield (
        f"{'It is' if len(above) == 1 else 'They are'} above by more than both intervals: declared work, roof or "
        "time is wrong."
    )


def table(run: RooflineRun, mechanism: str) -> Table:
    """Time and place of every variant of a mechanism, size by size, with warm and with cold caches."""
    from rich import box
    from rich.table import Table

    found = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    found.add_column(mechanism, max_width=28)
    found.add_column("caches", no_wrap=True)
    found.add_column("time", justify="right", no_wrap=True)
    found.add_column("place")
    seen = ""
    for point in run.listed(mechanism):
        if point.size != seen:
            seen = point.size
            found.add_row(seen.replace("  ", " "), style="dim")
        cache = "cold" if point.is_cold else "warm"
        found.add_row(f"  {point.case.variant}", cache, seconds(point.seconds.value), point.words(run.roofs))
    return found
