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
) -> int:
    """Run the isolated and end-to-end benches.

    The same as ``pytest bench/``; pytest's own options may follow, such as --benchmark-autosave.
    """
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
