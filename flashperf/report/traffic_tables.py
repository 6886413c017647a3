"""The tables of ``flashperf traffic``: simulated counts, said to be so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from flashperf import units
from flashperf.report.terminal import WIDTH

if TYPE_CHECKING:
    from flashperf.gpus import Gpu
    from flashperf.traffic.mechanism import CaseTraffic, KernelTraffic

_MOST_LINES = 12


def heading(gpu: Gpu) -> Text:
    """What all figures below are."""
    l2 = f"{gpu.l2_bytes >> 20} MiB" if gpu.l2_bytes >= 1 << 20 else f"{gpu.l2_bytes >> 10} KiB"
    return Text(f"Simulated, not measured: {gpu.title}, {gpu.sms} SMs, {l2} of L2, cold at first", "bold")


def _bytes(value: int) -> str:
    return units.rate(value, "B") if value else "0"


def _percent(hits: int, of: int) -> str:
    return f"{100 * hits / of:.0f} %" if of else "-"


def _degree(value: float, requests: int) -> str:
    return f"{value:.3g}x" if requests else "-"


def _per_request(sectors: int, least: int, requests: int) -> str:
    """``8 (4)``: what it was, and what it could have been where that is less."""
    if not requests:
        return "-"
    actual, ideal = f"{sectors / requests:.3g}", f"{least / requests:.3g}"
    return actual if actual == ideal else f"{actual} ({ideal})"


def _row(kernel: KernelTraffic) -> tuple[str, ...]:
    t, c = kernel.traffic, kernel.caches
    times = f" x {t.launches}" if t.launches > 1 else ""
    return (
        f"{t.kernel}{times}",
        f"{_bytes(t.read_bytes)}\n{_bytes(t.written_bytes)}",
        f"{_per_request(t.loads.sectors, t.loads.least_sectors, t.loads.requests)}\n"
        f"{_per_request(t.stores.sectors, t.stores.least_sectors, t.stores.requests)}",
        _degree(t.shared.conflict_degree, t.shared.requests),
        _percent(c.l1_hits, c.l1_sectors),
        _percent(c.l2_hits, c.l2_sectors),
        f"{_bytes(c.memory_read_bytes)}\n{_bytes(c.memory_written_bytes)}",
    )


def print_traffic(result: CaseTraffic, console: Console) -> None:
    """One case: a row per kernel, what is declared beside it, how much the order of blocks matters."""
    width = min(console.width, WIDTH)
    console.print()
    console.print(Text(result.case.id, "bold"), soft_wrap=True)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", width=width)
    table.add_column("kernel", overflow="fold", ratio=1)
    titles = (
        "read,\nwritten",
        "sectors per\nload, store",
        "bank\nconflict",
        "L1\nhits",
        "L2\nhits",
        "DRAM read,\nwritten",
    )
    for title in titles:
        table.add_column(title, justify="right", no_wrap=True)
    for kernel in result.kernels:
        table.add_row(*_row(kernel))
    console.print(table, width=width)
    for line in sentences(result):
        console.print(Text(line), width=width)
    for kernel in result.kernels:
        _print_lines(kernel, console, width)


def sentences(result: CaseTraffic) -> list[str]:
    """Declared against simulated bytes, and the hit rate had the blocks run one after another."""
    simulated = result.read_bytes + result.written_bytes
    said = [
        f"Declared {_bytes(result.cost.bytes)}, simulated {_bytes(simulated)}: ratio {result.bytes_ratio:.3f}."
    ]
    likely, in_order = result.caches, result.caches_in_order
    rates = [(round(100 * c.l1_hit_rate), round(100 * c.l2_hit_rate)) for c in (likely, in_order)]
    if rates[0] != rates[1]:
        said.append(
            f"Blocks one after another would give L1 {rates[1][0]} % and L2 {rates[1][1]} % hits, not "
            f"{rates[0][0]} % and {rates[0][1]} %."
        )
    if not result.registers_known:
        said.append(
            "Without nvcc, registers are not known: more blocks may be resident here than on the GPU."
        )
    return said


def _print_lines(kernel: KernelTraffic, console: Console, width: int) -> None:
    if not kernel.lines:
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for title in (kernel.traffic.kernel, "", "requests", "sectors or wavefronts", "least"):
        table.add_column(title, justify="left" if title in (kernel.traffic.kernel, "") else "right")
    for one in kernel.lines[:_MOST_LINES]:
        part = (one.shared.wavefronts, one.shared.least_wavefronts)
        if one.loads.requests:
            part = (one.loads.sectors, one.loads.least_sectors)
        table.add_row(one.line, one.what, str(one.loads.requests or one.shared.requests), *map(str, part))
    console.print(table, width=width)
