"""``flashperf compare``: two revisions whose processes take turns, or two saved files; a verdict per bench."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flashperf.errors import UserError

if TYPE_CHECKING:
    from flashperf.gate.outcome import GateReport
    from flashperf.gate.versus import GateOptions

Before = Annotated[
    str, typer.Argument(metavar="BEFORE", help="A revision (main, HEAD~3), or a saved file of benchmarks.")
]
Now = Annotated[
    str | None,
    typer.Argument(metavar="NOW", help="The same [default: the working tree].", show_default=False),
]
Select = Annotated[
    str | None,
    typer.Option("-k", metavar="EXPRESSION", help="Only benches whose name matches, as in pytest."),
]
Gate = Annotated[str, typer.Option(metavar="D%", help="What counts as slower: 5%, 0.5%.")]
FailOn = Annotated[
    str,
    typer.Option(metavar="LIST", help="slower, missing, failed, not-comparable, new, cant-tell, or none."),
]
Budget = Annotated[float, typer.Option(metavar="SECONDS", help="For each bench, after start-up.", min=0.05)]
Processes = Annotated[int, typer.Option(metavar="N", help="Process pairs at most.", min=6, max=64)]
Folder = Annotated[str, typer.Option(metavar="DIR", help="Where the bench files are, in both revisions.")]
Seed = Annotated[int, typer.Option(help="Of the order of runs.")]
Strict = Annotated[bool, typer.Option("--strict", help="Adjust 'no slower' for the number of benches too.")]
Moderated = Annotated[
    bool, typer.Option("--moderated", help="Borrow strength between benches for their spreads.")
]
RunSd = Annotated[
    str | None,
    typer.Option(
        "--run-sd", metavar="%", help="Saved files: spread between runs [default: assumed, and said]."
    ),
]
Markdown = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write markdown for a pull request; - is standard output.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the verdicts as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]


def compare(
    before: Before,
    now: Now = None,
    select: Select = None,
    gate: Gate = "5%",
    fail_on: FailOn = "slower,missing,failed,not-comparable",
    budget: Budget = 2.5,
    processes: Processes = 10,
    folder: Folder = "bench",
    seed: Seed = 0,
    strict: Strict = False,
    moderated: Moderated = False,
    run_sd: RunSd = None,
    markdown: Markdown = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Say of every bench whether it got slower.

    Two revisions are built in worktrees and their processes take turns. Two saved files (pytest-benchmark,
    pyperf, google-benchmark, nvbench, hyperfine; a folder or a pattern stands for its files) are compared as
    they are. Exit codes: 0 no outcome of --fail-on, 10 slower, 11 can't tell, 12 missing, 13 not comparable,
    14 failed, 15 new.
    """
    from flashperf.gate.outcome import parse_fail_on, parse_percent
    from flashperf.gate.versus import GateOptions

    options = GateOptions(
        parse_percent(gate, "gate"),
        strict=strict,
        moderated=moderated,
        run_sd=parse_percent(run_sd, "spread between runs") if run_sd else None,
    )
    wanted = parse_fail_on(fail_on)
    files = [is_file(before), now is not None and is_file(now)]
    if all(files):
        report = _saved(before, str(now), options, select)
    elif any(files):
        raise UserError(f"{before} and {now or 'the working tree'}: one is a file, the other a revision")
    else:
        report = _revisions(before, now, options, select or "", budget, processes, folder, seed, quiet)
    show(report, markdown, as_json)
    return report.exit_code(wanted)


def is_file(text: str) -> bool:
    """Whether an argument names saved files rather than a revision."""
    return Path(text).exists() or text.endswith((".json", ".jsonl")) or "*" in text


def show(report: GateReport, markdown: Path | None, as_json: bool) -> None:
    """Print a report and write its markdown. Raises UserError if that can't be written."""
    from flashperf.gate import text

    if markdown is not None and str(markdown) == "-":
        print(text.markdown(report), end="")
        return
    print(text.dumps(report) if as_json else "\n".join(text.lines(report)))
    if markdown is not None:
        try:
            markdown.write_text(text.markdown(report), encoding="utf-8")
        except OSError as error:
            raise UserError(f"can't write {markdown}: {error.strerror}") from error


def _saved(before: str, now: str, options: GateOptions, select: str | None) -> GateReport:
    from flashperf.gate.readers import read_runs
    from flashperf.gate.versus import compare_runs

    runs = [read_runs(name) for name in (before, now)]
    names = {name for run in runs for name in run.benches}
    left_out = [name for name in names if select and not matches(select, name)]
    if select and len(left_out) == len(names):
        raise UserError(f"no bench matches -k {select!r}")
    return compare_runs(runs[0], runs[1], options, not_selected=left_out)


def matches(expression: str, name: str) -> bool:
    """Whether a name matches words joined by ``and``, ``or``, ``not``, as pytest's -k has them."""
    from _pytest.mark.expression import Expression

    try:
        return Expression.compile(expression).evaluate(lambda word, /, **kwargs: word.lower() in name.lower())
    except SyntaxError as error:
        raise UserError(f"-k {expression!r}: {error}") from error


def _revisions(
    before: str,
    now: str | None,
    options: GateOptions,
    select: str,
    budget: float,
    processes: int,
    folder: str,
    seed: int,
    quiet: bool,
) -> GateReport:
    from flashperf.gate.looks import measure_pairs, pair_report
    from flashperf.gate.pairs import Pairs
    from flashperf.gate.revisions import Checkouts, build, repository, tree_of
    from flashperf.progress import open_progress

    repo = repository(Path.cwd())
    with Checkouts(repo) as checkouts, open_progress(quiet) as progress:
        labels = (before, now or "the working tree")
        places = [checkouts.revision(before), checkouts.revision(now) if now else checkouts.working_tree()]
        say: Callable[[str], None] = lambda text: progress.phase("compare", text)  # noqa: E731
        trees = []
        for label, place in zip(labels, places, strict=True):
            say(f"building {label}")
            built = build(place, repo / "build")
            trees.append(tree_of(label, place, built, checkouts.harness(), folder, select))
        with Pairs((trees[0], trees[1]), seed) as pairs:
            say("starting process pairs")
            pairs.start(min(8, processes))
            found = pairs.names()
            both = [name for name in found.ready[1] if name in found.ready[0]]
            if not both and not any(found.ready):
                raise UserError(nothing_to_run(found.skipped, select))
            say(f"{len(both)} benches, {budget:g} s each")

            def tell(name: str, done: int, total: int) -> None:
                progress.update(done / total, budget * (total - done), [f"{done} of {total}", name])

            results = measure_pairs(pairs, both, options, processes, budget, tell)
            return pair_report(pairs, labels, results, options, found.skipped, found.ready)


def nothing_to_run(skipped: object, select: str) -> str:
    """Why no bench is left."""
    reasons = [reason for side in skipped for reason in side.values()]  # type: ignore[attr-defined]
    if reasons:
        return f"no bench can run here: {reasons[0]}"
    return f"no bench matches -k {select!r}" if select else "there is no bench in either revision"
