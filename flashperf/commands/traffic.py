"""``flashperf traffic``: what the CUDA kernels of a mechanism ask of memory, with no GPU."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flashperf.commands import complete
from flashperf.errors import UserError

if TYPE_CHECKING:
    from flashperf.traffic.mechanism import CaseTraffic

Name = Annotated[
    str,
    typer.Argument(
        autocompletion=complete.mechanisms, metavar="MECHANISM", help="Whose kernels.", show_default=False
    ),
]
Variant = Annotated[
    list[str] | None, typer.Option(metavar="NAME", help="A variant; may be repeated [default: all].")
]
GpuName = Annotated[
    str,
    typer.Option("--gpu", autocompletion=complete.gpus, metavar="NAME", help="Whose caches: a100, h100, ..."),
]
Dtype = Annotated[str | None, typer.Option(metavar="NAME", help="[default: the mechanism's first]")]
Size = Annotated[
    str | None,
    typer.Option(metavar="k=v,...", help="Sizes instead of the largest test size, such as m=64,k=64."),
]
L2 = Annotated[
    int | None,
    typer.Option("--l2", metavar="KIB", help="An L2 of this size: small, as the sizes here are small."),
]
Bench = Annotated[bool, typer.Option("--bench", help="The first bench size; may take minutes.")]
Lines = Annotated[
    bool, typer.Option("--lines", help="Every access by its line in the source, the worst first.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def traffic(
    mechanism: Name,
    variant: Variant = None,
    gpu: GpuName = "h100",
    dtype: Dtype = None,
    size: Size = None,
    l2: L2 = None,
    bench: Bench = False,
    lines: Lines = False,
    as_json: Json = False,
) -> int:
    """Simulate the memory traffic of CUDA kernels, with no GPU.

    Runs them on the emulator and records every access: sectors per request, bank conflicts, bytes moved, and hit
    rates in a model of a GPU's L1 and L2, beside the bytes that the mechanism declares. Nothing is measured. See
    docs/traffic.md for what the model leaves out.
    """
    from flashperf import registry
    from flashperf.gpus import gpu as find_gpu
    from flashperf.traffic.mechanism import case_traffic, cuda_cases

    found, device = registry.mechanism(mechanism), find_gpu(gpu)
    if l2 is not None:
        if l2 < 1:
            raise UserError(f"--l2 is a number of KiB, not {l2}")
        device = replace(device, title=f"{device.title} with another L2", l2_bytes=l2 << 10)
    cases = cuda_cases(found, variant, dtype, "bench" if bench else "test", sizes_of(size))
    refused = {case.id: reason for case in cases if (reason := found.supports(case))}
    runnable = [case for case in cases if case.id not in refused]
    if not runnable:
        raise UserError("; ".join(f"{name}: {reason}" for name, reason in refused.items()))
    if as_json:
        results = [case_traffic(found, case, device, lines) for case in runnable]
        print(json.dumps([as_record(result) for result in results], indent=1))
        return 0
    from flashperf.report import console_for
    from flashperf.report.traffic_tables import heading, print_traffic

    console = console_for(sys.stdout)
    console.print(heading(device))
    for name, reason in refused.items():
        console.print(f"skipped {name}: {reason}")
    for case in runnable:
        print_traffic(case_traffic(found, case, device, lines), console)
    return 0


def sizes_of(text: str | None) -> dict[str, int | str]:
    """``m=64,op=softmax`` as a dict. Raises UserError for anything else, and for a number below 1."""
    found: dict[str, int | str] = {}
    for part in (text or "").split(",") if text else []:
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not (name and equals and value):
            raise UserError(f"--size is name=number,..., not {part.strip()!r}")
        if re.fullmatch(r"[-+.\d]+", value) and (not value.isdecimal() or int(value) < 1):
            raise UserError(f"a size is a whole number from 1 on, not {part.strip()!r}")
        found[name] = int(value) if value.isdecimal() else value
    return found


def as_record(result: CaseTraffic) -> dict[str, Any]:
    """A result as JSON: the case by its id, rates beside the counts that they come from."""
    kernels = []
    for kernel in result.kernels:
        record = asdict(kernel)
        for direction in ("loads", "stores"):
            record["traffic"][direction]["sectors_per_request"] = getattr(
                kernel.traffic, direction
            ).sectors_per_request
        record["traffic"]["shared"]["conflict_degree"] = kernel.traffic.shared.conflict_degree
        for name in ("caches", "caches_in_order"):
            counts = getattr(kernel, name)
            record[name] |= {"l1_hit_rate": counts.l1_hit_rate, "l2_hit_rate": counts.l2_hit_rate}
        kernels.append(record)
    return {
        "case": result.case.id,
        "gpu": result.gpu.name,
        "simulated": True,
        "declared": asdict(result.cost),
        "read_bytes": result.read_bytes,
        "written_bytes": result.written_bytes,
        "simulated_over_declared": result.bytes_ratio,
        "kernels": kernels,
    }
