"""``flashperf roofline``: every bench case under the roofs of this machine, as pictures and in words."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flashperf.commands import complete
from flashperf.commands._kept import kept
from flashperf.commands.explain import OUTPUT, fresh_folder
from flashperf.errors import EXIT_OK, UserError
from flashperf.progress import ProgressSink, open_progress
from flashperf.suggest import unknown_name

if TYPE_CHECKING:
    from flashperf.roofs import Roofs
    from flashperf.roofs.points import RooflineRun

RECORD = "roofline.jsonl"
_WIDTH = 80


def roofline(
    mechanisms: Annotated[
        list[str] | None,
        typer.Argument(
            autocompletion=complete.mechanisms, metavar="[MECHANISM...]", help="Default: all of them."
        ),
    ] = None,
    backend: Annotated[
        str, typer.Option(autocompletion=complete.backends, metavar="NAME", help="Where kernels run.")
    ] = "cpu",
    replay: Annotated[
        Path | None, typer.Option("--from", metavar="RUN", help="Measure nothing: draw a record.")
    ] = None,
    roofs: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Roofs of a record [default: those kept for this machine]."),
    ] = None,
    warm_only: Annotated[bool, typer.Option("--warm-only", help="Leave out cold caches.")] = False,
    budget: Annotated[float, typer.Option(metavar="SECONDS", help="Wall time for all cases.")] = 120.0,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for files [default: flashperf-out/TIME].")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print places as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> int:
    """Draw measured kernels under their roofs.

    Times the bench cases of every mechanism, with warm and with cold caches, says how far each is from what bounds
    it, and draws a picture per mechanism and one page of all (SVG and PNG).
    """
    from flashperf.roofs.suite import measure_suite, read_run

    folder = out or fresh_folder(OUTPUT)
    if replay is not None:
        run = _chosen(read_run(replay), mechanisms, replay)
    else:
        from flashperf.registry import names

        record = folder / RECORD
        with kept(record, "point", "flashperf roofline"), open_progress(quiet) as progress:
            run = measure_suite(
                mechanisms or names(),
                _roofs(roofs, progress, backend),
                backend=backend,
                budget_s=budget,
                cold=not warm_only,
                record=record,
                progress=progress,
            )
    _show(run, as_json)
    _draw(run, folder, sys.stderr if as_json else sys.stdout)
    return EXIT_OK


def _roofs(path: Path | None, progress: ProgressSink, backend: str) -> Roofs:
    from flashperf.roofs import load_roofs, roofs_for

    return load_roofs(path) if path else roofs_for(progress, backend)[0]


def _chosen(run: RooflineRun, mechanisms: list[str] | None, path: Path) -> RooflineRun:
    if not run.points:
        raise UserError(f"{path} holds no measured kernel")
    for name in mechanisms or ():
        if name not in run.mechanisms:
            raise UserError(unknown_name(f"mechanism in {path.name}", name, run.mechanisms))
    return run.only(mechanisms) if mechanisms else run


def _show(run: RooflineRun, as_json: bool) -> None:
    from flashperf.report import console_for
    from flashperf.report.rooflines import notes, place_of, table

    if as_json:
        print(json.dumps([place_of(point, run) for point in run.points], indent=1, ensure_ascii=False))
        return
    console = console_for(sys.stdout)
    width = min(console.width, _WIDTH)
    for name in run.mechanisms:
        console.print(table(run, name), width=width)
    for text in notes(run):
        console.print(text, width=width)


def _draw(run: RooflineRun, folder: Path, stream: Any) -> None:
    from flashperf.plots.roofline import roofline_page, roofline_picture
    from flashperf.report import console_for

    folder.mkdir(parents=True, exist_ok=True)
    console = console_for(stream)
    paths = [
        path for name in run.mechanisms for path in roofline_picture(run, name, folder / f"roofline-{name}")
    ]
    for path in [*paths, *roofline_page(run, folder / "roofline")]:
        console.print(f"wrote {path}", soft_wrap=True)
