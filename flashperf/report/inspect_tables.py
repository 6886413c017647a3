"""The tables of ``flashperf inspect``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from flashperf import registry, units
from flashperf.gpus import GPUS, LAUNCH_S
from flashperf.predict.launches import launches
from flashperf.predict.roofs import predict_case
from flashperf.report.terminal import WIDTH

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flashperf.machine_code import KernelCode
    from flashperf.predict.inspection import Inspected
    from flashperf.records import Case, Mechanism

#: Left out of the row: they say little about what a kernel is.
_DULL = ("other", "HFMA2", "BAR", "SHFL", "STS")
_SHORT = {"registers": "regs", "shared memory": "shared"}
_NAME_WIDTH = 20
_TIME_WIDTH = 10
_LEAST_FOR_OPCODES = 55
_BOUND = {"memory": "m", "compute": "c", "launch": "l"}


def _shared(one: Inspected) -> str:
    dynamic = one.launch.shared_bytes if one.launch else 0
    total = one.code.static_shared_bytes + dynamic
    return f"{total / 1024:.3g}K" if total else "-"


def _occupancy(one: Inspected) -> str:
    if one.occupancy is None:
        return "no case"
    limiters = " ".join(_SHORT.get(name, name) for name in one.occupancy.limiters)
    return f"{100 * one.occupancy.fraction:.3g} % {limiters}"


def _opcodes(code: KernelCode) -> str:
    return " ".join(f"{name}:{count}" for name, count in code.opcodes.items() if name not in _DULL)


def print_kernels(name: str, architecture: str, rows: Sequence[Inspected], console: Console) -> None:
    """One row per kernel, and what is not as expected."""
    width = min(console.width, WIDTH)
    console.print(Text(f"{name}, compiled for {architecture}", "bold"), width=width)
    spills = any(one.code.spilled for one in rows)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", width=width)
    table.add_column("kernel", overflow="fold", width=_NAME_WIDTH if width >= WIDTH else 10)
    table.add_column("regs", justify="right", min_width=4)
    table.add_column("shared", justify="right", min_width=6)
    if spills:
        table.add_column("spills", justify="right", width=6)
    table.add_column("occupancy by", width=13)
    roomy = width >= _LEAST_FOR_OPCODES
    if roomy:
        table.add_column("opcodes")
    for one in rows:
        code = one.code
        spilled = str(code.spill_bytes if code.spill_bytes is not None else code.local_accesses)
        cells = [code.name, str(code.registers), _shared(one), *([spilled] if spills else [])]
        table.add_row(*cells, _occupancy(one), *([_opcodes(code)] if roomy else []))
    console.print(table, width=width)
    bad = [f"{one.code.name}: {what}" for one in rows for what in one.failures]
    good = f"All {len(rows)} kernels hold what they must, and none spills."
    for line in bad or [good]:
        console.print(Text(f"not as expected: {line}" if bad else line), width=width)
    console.print()


def _kernels_of(mechanism: Mechanism, case: Case, rows: Sequence[Inspected]) -> list[KernelCode] | None:
    """The machine code of what a variant launches, from any of its cases in the same type; None if unknown."""
    prefix = f"{mechanism.name}/{case.variant}/cuda/{case.dtype}/"
    names = {
        (one.stem, one.kernel)
        for case_id, several in launches(mechanism.name).items()
        if case_id.startswith(prefix)
        for one in several
    }
    return [one.code for one in rows if (one.stem, one.code.name) in names] or None


def print_bounds(name: str, rows: Sequence[Inspected], console: Console) -> None:
    """The least time of every variant at the sizes that GPUs are benched with, on every GPU that is known."""
    width = min(console.width, WIDTH)
    mechanism = registry.mechanism(name)
    cases = [case for case in registry.cases(mechanism, "bench", ["cuda"]) if not mechanism.supports(case)]
    console.print(Text("Predicted, not measured: the least time of a call", "bold"), width=width)
    side_by_side = max(1, (width - _NAME_WIDTH) // _TIME_WIDTH)
    for sizes in dict.fromkeys(case.sizes for case in cases):
        label = " ".join(f"{key}={value}" for key, value in sizes)
        for first in range(0, len(GPUS), side_by_side):
            gpus = list(GPUS.values())[first : first + side_by_side]
            table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim", width=width)
            table.add_column(label, overflow="fold", ratio=1)
            for gpu in gpus:
                table.add_column(gpu.name, justify="right", no_wrap=True)
            for case in (case for case in cases if case.sizes == sizes):
                kernels = _kernels_of(mechanism, case, rows)
                found = [predict_case(mechanism, case, gpu, kernels) for gpu in gpus]
                table.add_row(case.variant, *(f"{units.seconds(p.seconds)} {_BOUND[p.bound]}" for p in found))
            console.print(table, width=width)
    console.print(
        Text(
            "m memory, c compute, l launches: declared bytes and operations over data-sheet peaks, and "
            f"{units.seconds(LAUNCH_S)} a launch; without caches, latency and half-filled SMs.",
            "dim",
        ),
        width=width,
    )
