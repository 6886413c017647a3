"""``flashperf inspect``: what nvcc made of the CUDA kernels, with no GPU."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flashperf.commands import complete
from flashperf.errors import EXIT_FAILED

if TYPE_CHECKING:
    from flashperf.predict.inspection import Inspected

Name = Annotated[
    str | None,
    typer.Argument(
        autocompletion=complete.mechanisms,
        metavar="MECHANISM",
        help="Whose kernels, or a file of csrc/cuda [default: all].",
        show_default=False,
    ),
]
Architecture = Annotated[
    str, typer.Option("--arch", metavar="sm_80|sm_89|sm_90a|sm_100", help="What nvcc compiles for.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def inspect(mechanism: Name = None, arch: Architecture = "sm_90a", as_json: Json = False) -> int:
    """Read the machine code of CUDA kernels, with no GPU.

    Compiles them and prints registers, shared memory, spills, theoretical occupancy with what limits it, and opcode
    classes, against a table of what each kernel must hold; for one mechanism also the bounds that roofs give its
    variants on named GPUs. Exit code 1 if a kernel is not as expected.
    """
    from flashperf import registry
    from flashperf.predict.inspection import chosen_files
    from flashperf.predict.inspection import inspect as inspect_kernels

    names = chosen_files(mechanism)
    found = inspect_kernels(names, arch)
    if as_json:
        print(json.dumps([as_record(one) for rows in found.values() for one in rows], indent=1))
    else:
        from flashperf.report import console_for
        from flashperf.report.inspect_tables import print_bounds, print_kernels

        console = console_for(sys.stdout)
        for name, rows in found.items():
            print_kernels(name, arch, rows, console)
        if mechanism is not None and mechanism in registry.names():
            print_bounds(mechanism, found[mechanism], console)
    return EXIT_FAILED if any(one.failures for rows in found.values() for one in rows) else 0


def as_record(one: Inspected) -> dict[str, Any]:
    """A kernel as JSON."""
    return {"mechanism": one.stem, **asdict(one)}
