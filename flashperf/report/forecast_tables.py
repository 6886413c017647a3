"""A predicted explanation as text: every line of it says that nothing was measured."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from flashperf import units
from flashperf.gpus import GRAPH_LAUNCH_S, LAUNCH_S
from flashperf.report.terminal import WIDTH

if TYPE_CHECKING:
    from flashperf.forecast.pipeline import Forecast

_KINDS = {
    "memory": "kernels bound by memory",
    "compute": "kernels bound by arithmetic",
    "launch": "kernels bound by their launch",
    "link": "weights over PCIe",
    "dispatch": "launches dispatched one by one",
}
_NOT_PRICED = {
    "fresh_pages": "memory asked of the driver",
    "host_mask": "masks built on the host",
    "host_checkpoint": "saved state",
    "host_checkpoint_copy": "copies of state to be saved",
    "host_handover": "work handed to the copying thread",
    "host_dispatch": "dispatch from Python",
}


def print_forecast(found: Forecast, console: Console) -> None:
    """What is predicted, the parts of the time, the switches, and what was left out."""
    width = min(console.width, WIDTH)
    title = f"Predicted for {found.gpu.title}, which is not here: nothing was measured"
    console.print(Text(title, "bold"), width=width)
    console.print(Text(found.subject, "dim"), width=width)
    console.print()
    console.print(_times(found), width=width)
    console.print()
    console.print(_switches(found), width=width)
    for line in left_out(found):
        console.print()
        console.print(Text(line, "dim"), width=width)


def _times(found: Forecast) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("predicted time of a run", "Standard", "Flash", "Flash / Standard"):
        table.add_column(name, justify="left" if name.startswith("predicted") else "right")
    whole = (units.seconds(found.standard_s), units.seconds(found.flash_s), f"{found.ratio:.3g}x")
    table.add_row("in all", *whole, style="bold")
    for kind, both in found.parts.items():
        table.add_row(_KINDS[kind], *(units.seconds(value) if value else "-" for value in both), "")
    if any(found.occupancy):
        held = (f"{100 * value:.0f} %" if value else "-" for value in found.occupancy)
        table.add_row("occupancy of the kernels, by time", *held, "")
    return table


def _switches(found: Forecast) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("switch", "from", "to"):
        table.add_column(name)
    table.add_column("predicted factor", justify="right")
    table.add_column("of the slowdown", justify="right")
    for share in sorted(found.shares, key=lambda one: -abs(math.log(one.ratio))):
        part = math.log(share.ratio) / math.log(found.ratio) if found.ratio != 1 else math.nan
        percent = f"{round(100 * part)} %" if abs(math.log(found.ratio)) > 0.05 else "-"
        table.add_row(share.switch, share.standard, share.flash, f"{share.ratio:.3g}x", percent)
    return table


def left_out(found: Forecast) -> list[str]:
    """How it was predicted, and what it can't know."""
    method = (
        f"A kernel takes its bytes over {units.rate(found.gpu.bytes_per_s, 'B/s')}, its operations over the peak of "
        f"its unit, or {units.seconds(GRAPH_LAUNCH_S)} in a graph, whichever is most; a launch dispatched by itself "
        f"adds {units.seconds(LAUNCH_S)}. Peaks from: {found.gpu.source}. The launch costs are assumptions."
    )
    said = [
        method,
        "Left out: caches, latency (low occupancy hides less of it), copies that overlap with kernels, the clock under "
        "load, and how far kernels stay below their roofs. Real times are longer, not all by the same factor.",
    ]
    if found.left_out:
        rows = (f"{_NOT_PRICED.get(name, name)} ({a} and {b})" for name, (a, b) in found.left_out.items())
        said.append(f"Not priced, times in Standard and Flash: {', '.join(rows)}.")
    if not found.code_known:
        said.append(
            "Without nvcc, the units that multiply are taken from the formats, not from machine code."
        )
    return said


def as_record(found: Forecast) -> dict[str, Any]:
    """The same as JSON; ``predicted`` is always true."""
    return {
        "predicted": True,
        "measured": False,
        "gpu": found.gpu.name,
        "source": found.gpu.source,
        "subject": found.subject,
        "standard_s": found.standard_s,
        "flash_s": found.flash_s,
        "ratio": found.ratio,
        "occupancy": list(found.occupancy),
        "parts_s": {kind: list(both) for kind, both in found.parts.items()},
        "switches": [
            {"switch": s.switch, "standard": s.standard, "flash": s.flash, "ratio": s.ratio}
            for s in found.shares
        ],
        "not_priced": {name: list(both) for name, both in found.left_out.items()},
        "notes": left_out(found),
    }
