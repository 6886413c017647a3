"""``flashperf crossover`` and ``flashperf advise``: from which size on which variant is the faster one."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flashperf.commands import complete
from flashperf.commands._kept import kept
from flashperf.commands.explain import OUTPUT, fresh_folder
from flashperf.errors import EXIT_OK, EXIT_TOO_NOISY, UserError
from flashperf.progress import open_progress

if TYPE_CHECKING:
    from flashperf.crossover import CrossoverResult

RECORD = "crossover.jsonl"

Budget = Annotated[float, typer.Option(metavar="SECONDS", help="Wall time, beyond the start of processes.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def crossover(
    mechanism: Annotated[
        str | None,
        typer.Argument(
            autocompletion=complete.mechanisms, metavar="MECHANISM", help="flashperf mechanisms lists them."
        ),
    ] = None,
    axis: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="rows, cols, depth, length, steps, or a size of the mechanism."),
    ] = None,
    span: Annotated[
        str | None,
        typer.Option(
            "--range", metavar="LOW:HIGH", help="Sizes to look between [1:4096; elements 1:1048576]."
        ),
    ] = None,
    between: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="A B", help="Two variants [default: standard and flash].", show_default=False),
    ] = None,
    size: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Fix another size, such as cols=2048.")
    ] = None,
    dtype: Annotated[str | None, typer.Option(metavar="NAME", help="Number format of the case.")] = None,
    backend: Annotated[
        str, typer.Option(autocompletion=complete.backends, metavar="NAME", help="Where kernels run.")
    ] = "cpu",
    budget: Budget = 60.0,
    seed: Annotated[int, typer.Option(help="Of inputs and orders.")] = 0,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for files [default: flashperf-out/TIME].")
    ] = None,
    record: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="Measure nothing: read a record back.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Find the size from which one variant overtakes another.

    Prints an interval for the crossing, what both cost, and a rule for your code; draws the picture. Answers are
    also "none in the range", "crosses twice", "between 300 and 900", "can't tell" (exit code 3).
    """
    from flashperf.crossover import crossover_of, replay

    if record is not None:
        _, result = replay(record)
        return _show(result, out, as_json)
    if mechanism is None:
        raise UserError("name a mechanism, or a record with --from; flashperf mechanisms lists them")
    low, high = parse_range(span)
    sizes = _beside_axis(mechanism, axis, parse_sizes(size or []))
    folder = out or fresh_folder(OUTPUT)
    path = folder / RECORD
    with kept(path, "block", "flashperf crossover"), open_progress(quiet) as progress:
        result = crossover_of(
            mechanism,
            axis=axis,
            low=low,
            high=high,
            between=between,
            sizes=sizes,
            backend=backend,
            dtype=dtype,
            budget_s=budget,
            seed=seed,
            record=path,
            progress=progress,
        )
    return _show(result, folder, as_json, path)


def parse_range(text: str | None) -> tuple[int | None, int | None]:
    """``1:4096`` as two numbers. Raises UserError for anything else."""
    if text is None:
        return None, None
    low, colon, high = text.partition(":")
    if not (colon and low.strip().isdigit() and high.strip().isdigit()):
        raise UserError(f"--range is LOW:HIGH, such as 1:4096, not {text!r}")
    return int(low), int(high)


def parse_sizes(items: list[str]) -> dict[str, int | str]:
    """``["cols=2048", "op=softmax"]`` as a mapping. Raises UserError for anything else."""
    found: dict[str, int | str] = {}
    for item in items:
        for part in item.split(","):
            name, equals, value = (piece.strip() for piece in part.partition("="))
            if not (name and equals and value):
                raise UserError(f"--size is NAME=VALUE, such as cols=2048, not {part.strip()!r}")
            found[name] = int(value) if value.isdigit() else value
    return found


def _beside_axis(mechanism: str, axis: str | None, sizes: dict[str, int | str]) -> dict[str, int | str]:
    """The sizes. Raises UserError if one of them is what the axis varies."""
    from flashperf import registry
    from flashperf.crossover import axis_of

    for key in axis_of(registry.mechanism(mechanism), axis).keys:
        if key in sizes:
            raise UserError(f"{key} is what is varied: give its --range LOW:HIGH, not a --size")
    return sizes


def _show(result: CrossoverResult, folder: Path | None, as_json: bool, record: Path | None = None) -> int:
    """Print a result, draw it where a folder is known; exit code 3 where it can't be told."""
    from flashperf.report import console_for
    from flashperf.store import to_json

    if as_json:
        print(json.dumps(to_json(result) | {"answer": result.answer, "rule": result.rule}, indent=1))
    else:
        console = console_for(sys.stdout)
        console.print(str(result), soft_wrap=True)
    if folder is not None:
        from flashperf.plots.crossover import crossover_picture

        folder.mkdir(parents=True, exist_ok=True)
        console = console_for(sys.stderr if as_json else sys.stdout)
        for path in crossover_picture(result, folder / "crossover"):
            console.print(f"wrote {path}", soft_wrap=True)
        if record:
            console.print(f"record {record}", soft_wrap=True)
    return EXIT_TOO_NOISY if result.finding.kind == "unresolved" else EXIT_OK
