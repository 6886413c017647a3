"""``flashperf explain``: measure, or read a record back; print, write, and say how sure the result is."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flashperf.commands import complete
from flashperf.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_TOO_NOISY, UserError
from flashperf.progress import open_progress

if TYPE_CHECKING:
    from flashperf.records import Explanation

BEGAN = time.monotonic()  # the budget counts from the start of the program, as nearly as it can be known
OUTPUT = Path("flashperf-out")
RECORD = "record.jsonl"

Target = Annotated[
    str | None,
    typer.Argument(
        metavar="MODULE:FACTORY",
        help="Your own pipeline: factory(**levels) returns a callable. Without it: the built-in model.",
        show_default=False,
    ),
]
Budget = Annotated[float, typer.Option(metavar="SECONDS", help="Wall time, from start to exit.")]
Scenario = Annotated[
    str | None,
    typer.Option(
        autocompletion=complete.pipeline_scenarios,
        metavar="NAME",
        help="single (one task), batch or batch:N (eight or N of varied length), serve (requests that arrive over "
        "time), long (1024 tokens), ragged (64 of 8 to 2048) [default: single].",
    ),
]
Flash = Annotated[
    str | None,
    typer.Option(metavar="a|b|k=v,...", help="The Flash variant: a document's, or levels [default: a]."),
]
Standard = Annotated[
    str | None, typer.Option(metavar="k=v,...", help="Levels of the Standard variant, where they differ.")
]
Backend = Annotated[
    str | None,
    typer.Option(autocompletion=complete.backends, metavar="NAME", help="Where kernels run [default: cpu]."),
]
GpuName = Annotated[
    str | None,
    typer.Option(
        "--gpu",
        autocompletion=complete.gpus,
        metavar="NAME",
        help="Predict, with no GPU: a100, h100, ... (--backend cuda).",
    ),
]
Model = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="small (trained) or shape:PRESET (random weights) [default: small]."),
]
Seed = Annotated[int, typer.Option(help="Of the order of runs and of all inputs.")]
Out = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Folder for files [default: flashperf-out/TIME].")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON instead of tables.")]
Replay = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Measure nothing: recompute everything from a record.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress; only the words and the files.")]


def explain(
    target: Target = None,
    budget: Budget = 60.0,
    scenario: Scenario = None,
    flash: Flash = None,
    standard: Standard = None,
    backend: Backend = None,
    gpu: GpuName = None,
    model: Model = None,
    seed: Seed = 0,
    out: Out = None,
    as_json: Json = False,
    replay: Replay = None,
    quiet: Quiet = False,
) -> int:
    """Split Flash's slowdown over its switches.

    Measures the Standard and the Flash variant and mixtures of both; prints tables and a verdict in words;
    writes the record of raw samples, report.html and the waterfall. Exit codes: 0 done, 2 bad arguments, 3
    measured but too noisy, 130 interrupted (what was measured is kept and reported).
    """
    options = {"scenario": scenario, "backend": backend, "model": model, "flash": flash, "standard": standard}
    given = {name: value for name, value in options.items() if value is not None}
    folder = out or fresh_folder(OUTPUT)
    if gpu is not None:
        from flashperf.commands.forecast import forecast

        own = {
            "MODULE:FACTORY": target,
            "replay": str(replay) if replay else None,
            "out": str(out) if out else None,
        }
        _refuse("--gpu predicts the built-in model and writes no files", own)
        return forecast(gpu, given, seed, as_json)
    if replay is not None:
        _refuse("--replay recomputes a record as it was made", {"MODULE:FACTORY": target, **given})
        return show(_replayed(replay), folder, replay, as_json=as_json, quiet=quiet)
    record = folder / RECORD
    common = {"budget_s": budget, "seed": seed, "out": folder, "began": BEGAN}
    try:
        with open_progress(quiet) as progress:
            explanation = _measured(target, given, {**common, "progress": progress})
    except Exception as error:
        kept = _kept(record)
        if not kept:
            raise
        raise UserError(f"{error}{kept}", getattr(error, "exit_code", EXIT_FAILED)) from error
    return show(explanation, folder, record, as_json=as_json, quiet=quiet)


def _measured(target: str | None, given: Mapping[str, Any], common: Mapping[str, Any]) -> Explanation:
    """Measure the built-in model, or a factory."""
    if target is None:
        from flashperf.explain import explain_pipeline

        return explain_pipeline(**{**given, **common})
    own = {name: given.get(name) for name in ("scenario", "backend", "model")}
    _refuse("a factory has no such option", own)
    standard, flash = (assignments(name, given.get(name)) for name in ("standard", "flash"))
    from flashperf.explain import explain_factory

    return explain_factory(target, standard, flash, **common)


def _replayed(path: Path) -> Explanation:
    from flashperf.explain import replay

    return replay(path)


def _refuse(why: str, options: Mapping[str, str | None]) -> None:
    """Raise UserError if any of the options was given."""
    given = [name if ":" in name else f"--{name}" for name, value in options.items() if value is not None]
    if given:
        raise UserError(f"{why}: leave out {', '.join(given)}")


def assignments(option: str, text: str | None) -> dict[str, str]:
    """``a=1,b=x`` as a dict. Raises UserError for anything else, and where it is missing."""
    found: dict[str, str] = {}
    for part in (text or "").split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not (name and equals and value):
            said = f"not {part.strip()!r}" if part.strip() else "such as compile=True,dtype=bf16"
            raise UserError(f"--{option} of a factory is switch=level,..., {said}")
        if name in found:
            raise UserError(f"--{option} gives {name} twice")
        found[name] = value
    return found


def fresh_folder(parent: Path) -> Path:
    """``parent``/<date>-<time>, with a number behind it if that is taken; it is not made here."""
    stem = datetime.now().strftime("%Y%m%d-%H%M%S")
    names = [stem, *(f"{stem}-{n}" for n in range(2, 100))]
    return next(parent / name for name in names if not (parent / name).exists())


def _kept(record: Path) -> str:
    """Where the measurements are, if any were made before something failed."""
    try:
        measured = '"kind": "group"' in record.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return f"; what was measured is kept: flashperf explain --replay {record}" if measured else ""


def show(explanation: Explanation, folder: Path, record: Path, *, as_json: bool, quiet: bool) -> int:
    """Print an explanation and write its files; returns the exit code."""
    from rich.text import Text

    from flashperf.report import console_for, print_explanation, to_json, words, write_report

    code, warning = judged(explanation)
    console = console_for(sys.stderr if as_json else sys.stdout)
    if as_json:
        json.dump(to_json(explanation), sys.stdout, indent=1, ensure_ascii=False)
        sys.stdout.write("\n")
    elif quiet:
        console.out("\n".join(words(explanation)), highlight=False)
    else:
        print_explanation(explanation, console)
    try:
        written = write_report(explanation, folder, record, warning)
    except OSError as error:
        full = f"can't write the report to {folder}: {error.strerror}"
        raise UserError(f"{full}{_kept(record)}", EXIT_FAILED) from error
    for path in (record, *written):
        console.print(Text(f"wrote {path}" if path != record else f"record {path}"), soft_wrap=True)
    if warning:
        print(f"flashperf: {warning}", file=sys.stderr)
    return code


def judged(explanation: Explanation) -> tuple[int, str]:
    """The exit code, and why it isn't 0."""
    from flashperf.attribution import precise_enough
    from flashperf.report import noise_reason

    found = explanation.attribution
    if explanation.partial:
        interrupted = found.stopped == "interrupted"
        why = "interrupted" if interrupted else f"ended early ({found.stopped})"
        return EXIT_INTERRUPTED if interrupted else EXIT_FAILED, f"{why}: the result is partial"
    if not precise_enough(found, explanation.busy):
        return EXIT_TOO_NOISY, f"too noisy: {noise_reason(explanation)}"
    return EXIT_OK, ""
