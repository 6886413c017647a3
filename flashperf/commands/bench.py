"""``flashperf bench``: the isolated benches and the end-to-end one, through pytest-benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flashperf.errors import EXIT_BAD_ARGUMENTS, EXIT_FAILED, EXIT_INTERRUPTED, UserError

#: pytest's exit code -> ours: tests failed, interrupted, internal error, usage error, nothing collected
_EXIT_CODES = {
    1: EXIT_FAILED,
    2: EXIT_INTERRUPTED,
    3: EXIT_FAILED,
    4: EXIT_BAD_ARGUMENTS,
    5: EXIT_BAD_ARGUMENTS,
}


def bench(
    context: typer.Context,
    folder: Annotated[
        Path, typer.Option("--folder", metavar="DIR", help="Where the bench files are.")
    ] = Path("bench"),
    select: Annotated[
        str | None,
        typer.Option("-k", metavar="EXPRESSION", help="Only benches whose name matches, as in pytest."),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Time for all benches together.", show_default=False),
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="With MECHANISM: backends side by side (cpu,cuda,triton).",
            show_default=False,
        ),
    ] = None,
    dtype: Annotated[
        str | None, typer.Option(help="With MECHANISM: f32, bf16, ...", show_default=False)
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(metavar="m=128-k=512", help="With MECHANISM: this size alone.", show_default=False),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="With MECHANISM: keep the samples, as JSON lines.", show_default=False
        ),
    ] = None,
) -> int:
    """Run all benches, or one MECHANISM on every backend.

    Without a MECHANISM the same as ``pytest bench/``; pytest's own options may follow, such as
    --benchmark-autosave. ``flashperf bench tiling`` prints one table: variants down, backends across,
    error beside speed.
    """
    if context.args[:1] and not context.args[0].startswith("-"):
        return _side_by_side(context.args, backend, dtype, size, budget, record)
    if any(value is not None for value in (backend, dtype, size, record)):
        raise UserError("--backend, --dtype, --size and --record need a mechanism: flashperf bench tiling")
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder} with benches here; name one with --folder")
    import pytest

    arguments = [str(folder)]
    if select is not None:
        arguments += ["-k", select]
    if budget is not None:
        arguments.append(f"--flashperf-budget={budget:g}")
    code = int(pytest.main([*arguments, *context.args]))
    return _EXIT_CODES.get(code, code)


def _side_by_side(
    arguments: list[str],
    backend: str | None,
    dtype: str | None,
    size: str | None,
    budget: float | None,
    record: Path | None,
) -> int:
    from flashperf.commands import bench_backends

    if len(arguments) > 1:
        raise UserError(f"bench {arguments[0]} takes no further arguments: {' '.join(arguments[1:])}")
    return bench_backends.run(
        arguments[0],
        bench_backends.BACKENDS if backend is None else backend,
        dtype=dtype,
        size=size,
        budget_s=bench_backends.BUDGET_S if budget is None else budget,
        record=record,
    )
