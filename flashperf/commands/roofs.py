"""``flashperf roofs``: what this machine can do at best, measured and kept."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flashperf.errors import EXIT_OK
from flashperf.gpus import of_device
from flashperf.progress import open_progress

if TYPE_CHECKING:
    from rich.table import Table

    from flashperf.roofs import Ceiling, Roofs

_WIDTH = 80


def roofs(
    budget: Annotated[float, typer.Option(metavar="SECONDS", help="Wall time.")] = 30.0,
    backend: Annotated[str, typer.Option(metavar="NAME", help="cpu, or cuda for a GPU's.")] = "cpu",
    processes: Annotated[int, typer.Option(metavar="N", help="Fresh processes, a value from each.")] = 8,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help="Keep them in this record as well.", show_default=False
        ),
    ] = None,
    show: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="Measure nothing: print those of a record."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> int:
    """Measure this machine's ceilings and keep them.

    Bandwidth per memory level, arithmetic per format and unit, the cost of a call and of reading the clock, with
    one thread and with all. On a GPU: shared memory, L2, device memory, host link, FMA units and Tensor Cores, the
    cost of a launch. What places kernels on a roofline reads the file that this writes.
    """
    from flashperf.report import console_for
    from flashperf.roofs import keep_roofs, load_roofs, measure_roofs, save_roofs
    from flashperf.store import to_json

    paths: list[Path] = []
    if show is not None:
        found = load_roofs(show)
    else:
        with open_progress(quiet) as progress:
            found = measure_roofs(processes, budget, progress, backend=backend)
        found, kept = keep_roofs(found)
        paths = [path for path in (kept, save_roofs(found, out) if out else None) if path]
    if as_json:
        print(json.dumps(to_json(found), indent=1, ensure_ascii=False))
        return EXIT_OK
    console = console_for(sys.stdout)
    width = min(console.width, _WIDTH)
    for table in tables(found):
        console.print(table, width=width)
    console.print(said(found), width=width)
    for path in paths:
        console.print(f"wrote {path}", soft_wrap=True)
    return EXIT_OK


def said(found: Roofs) -> str:
    """What an interval is, where and how long it was measured, and what to beware of."""
    processes = max((len(c.per_process) for c in found.ceilings), default=0)
    text = (
        f"The best of several samples in each of {processes} processes, with the 95 % interval over processes. "
        f"{found.environment.device}, {found.seconds:.0f} s."
    )
    sheet = of_device(found.environment.device)
    if sheet:
        text += f" Data sheet: {sheet.title}; {sheet.source}."
    notes = list(found.notes)
    if found.environment.busy:
        notes.append(f"the machine is busy: {found.environment.busy_reason}")
    return " ".join([text, *(f"Note: {note}." for note in notes)])


def tables(found: Roofs) -> list[Table]:
    """Memory, arithmetic and fixed costs; one column for each number of threads, or one for a whole GPU."""
    from flashperf.roofs import COMPUTE, DISPATCH, LINK, MEMORY, SCRATCHPAD, TIMER

    counts = found.thread_counts
    rows = (("memory", (SCRATCHPAD, MEMORY, LINK)), ("arithmetic", (COMPUTE,)))
    return [
        *(
            _table(title, found, [c for kind in kinds for c in found.of(kind)], counts)
            for title, kinds in rows
        ),
        _table("fixed costs", found, [*found.of(DISPATCH), *found.of(TIMER)], [1]),
    ]


def data_sheet(found: Roofs) -> dict[str, str]:
    """Name of a level or format -> what the maker says, as text; empty where no data sheet is known."""
    from flashperf.roofs import COMPUTE, LINK, MEMORY
    from flashperf.units import rate

    sheet = of_device(found.environment.device)
    if not sheet:
        return {}
    said = {c.name: rate(sheet.bytes_per_s, "B/s") for c in found.of(MEMORY) if not c.level_bytes}
    said |= {c.name: f"{rate(sheet.link_bytes_per_s, 'B/s')} each way" for c in found.of(LINK)}
    for ceiling in found.of(COMPUTE):
        peak = sheet.peaks.get({"bf16": "f16"}.get(ceiling.name, ceiling.name))
        if peak:
            said[ceiling.name] = rate(peak, ceiling.unit)
    return said


def _table(title: str, found: Roofs, ceilings: list[Ceiling], counts: list[int]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, title_justify="left")
    table.add_column(title)
    table.add_column("")
    for threads in counts:
        of_cpu = f"{threads} thread{'s' * (threads > 1)}"
        table.add_column(of_cpu if found.backend == "cpu" else "whole GPU", justify="right")
    rows = dict.fromkeys((c.name, c.how) for c in ceilings)
    by_key = {(c.name, c.how, c.threads): c for c in ceilings}
    seen, sheet = "", data_sheet(found)
    last = dict(list(rows))  # the last pattern or unit of each name
    for name, how in rows:
        cells = [_cell(by_key.get((name, how, threads))) for threads in counts]
        label = name if name != seen else ""
        table.add_row(label, "" if counts == [1] and title == "fixed costs" else how, *cells)
        seen = name
        if how == last[name] and name in sheet:
            table.add_row("", "data sheet", sheet[name], style="dim")
    return table


def _cell(ceiling: Ceiling | None) -> str:
    """``28.8 GB/s ±1.5 %``: the value and half its interval."""
    if ceiling is None:
        return ""
    interval = ceiling.interval
    half = 100 * (interval.high / interval.low) ** 0.5 - 100
    return f"{ceiling.text(interval.value)} ±{half:.1f} %"
