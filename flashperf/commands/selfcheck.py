"""``flashperf selfcheck``: the program's own claims about its accuracy, checked."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from flashperf.errors import EXIT_FAILED, EXIT_OK
from flashperf.progress import ProgressSink, open_progress


def attribution(
    real: Annotated[
        bool, typer.Option("--real", help="Burn the causes in processes; judge directions only.")
    ] = False,
    runs: Annotated[int, typer.Option(min=1, help="Simulated runs.")] = 400,
    seed: Annotated[int, typer.Option(help="Of the simulation.")] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> int:
    """Recover planted causes; check the intervals.

    Compares the shares with what was planted, and how often their intervals hold it. Exit code 1 if it fails.
    """
    from flashperf.selfcheck import selfcheck_attribution, selfcheck_real

    with open_progress(quiet) as progress:
        progress.phase("selfcheck", "planted causes, " + ("burnt" if real else "recorded noise replayed"))
        told = counted(progress)
        if real:
            lines, passed = _result(selfcheck_real(seed=seed, progress=told))
        else:
            lines, passed = _result(selfcheck_attribution(runs, seed, progress=told))
    print("\n".join(lines))
    return EXIT_OK if passed else EXIT_FAILED


def gate(
    suites: Annotated[
        int,
        typer.Option(min=0, help="Suites of identical code to measure here, and half as many slowed ones."),
    ] = 4,
    budget: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.05, help="For each bench of a suite.")
    ] = 1.0,
    runs: Annotated[int, typer.Option(min=20, help="Simulated suites a row.")] = 1000,
    replay: Annotated[
        list[Path] | None,
        typer.Option("--from", metavar="FILE", help="Measure nothing: judge the suites of records."),
    ] = None,
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="Where the suites that are measured are recorded.")
    ] = Path("flashperf-out/gate-trials.jsonl"),
    seed: Annotated[int, typer.Option(help="Of the simulation.")] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> int:
    """Measure the gate's error rates on this machine.

    Simulates the decision rule on recorded noise; then runs suites of identical code and of planted slowdowns,
    beside what the rules of other tools would have said. Exit code 1 if an aim is missed.
    """
    from flashperf.gate.power import SCENARIOS, simulate
    from flashperf.gate.trial_report import aim_lines, simulated_lines, trial_lines
    from flashperf.gate.trials import read_trials, record_trials, selfcheck_plan, suite_cases
    from flashperf.noise import load_noise

    recorded = [trial for path in replay or [] for trial in read_trials(path)]
    noise = load_noise()
    with open_progress(quiet) as progress:
        progress.phase("selfcheck", "the decision rule on recorded noise")
        told = counted(progress)
        rates = []
        for done, scenario in enumerate(SCENARIOS, start=1):
            rates.append(simulate(scenario, noise, runs, seed))
            told(done, len(SCENARIOS))
        if not replay and suites:
            progress.phase("selfcheck", f"{suites} suites of identical code, {(suites + 1) // 2} slowed")
            told = counted(progress)
            target = unused(out)
            plan = selfcheck_plan(suites, budget)
            record_trials(target, plan, suite_cases(), lambda done, total, name: told(done, total))
            recorded = read_trials(target)
    lines, passed = aim_lines(rates)
    lines = [*simulated_lines(rates, noise.about), *lines]
    if recorded:
        lines += ["", *trial_lines(recorded)]
    if not replay and suites:
        lines.append(f"record {target}")
    print("\n".join(lines))
    return EXIT_OK if passed else EXIT_FAILED


def unused(path: Path) -> Path:
    """The path, or the first with a number behind its stem that isn't taken."""
    taken = [path, *(path.with_stem(f"{path.stem}-{n}") for n in range(2, 1000))]
    return next(one for one in taken if not one.exists())


def prediction(
    scenario: Annotated[str, typer.Option(metavar="NAME", help="As of explain.")] = "single",
    flash: Annotated[str, typer.Option(metavar="a|b|k=v,...", help="The Flash variant.")] = "a",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> int:
    """Predict this CPU; compare with what it does.

    The method that predicts GPUs that are not here (explain --gpu), with this machine's measured roofs, beside
    measured times: its error is how far it may be trusted. Measures the roofs first, if that was not done yet.
    """
    from flashperf.forecast.accuracy import check_accuracy, lines
    from flashperf.roofs import roofs_for

    with open_progress(quiet) as progress:
        roofs, path, _ = roofs_for(progress)
        progress.phase("selfcheck", "the pipeline, predicted and measured")
        found = check_accuracy(
            roofs, path.name if path else "roofs of this run", scenario=scenario, flash=flash
        )
    print("\n".join(lines(found)))
    return EXIT_OK


def _result(report: object) -> tuple[list[str], bool]:
    return report.lines(), report.passed  # type: ignore[attr-defined]


def counted(progress: ProgressSink) -> Callable[[int, int], None]:
    """A (done, all) callback that tells a sink how far it is and how long the rest will take."""
    began = time.monotonic()

    def tell(done: int, all_of_them: int) -> None:
        spent = time.monotonic() - began
        left = spent / done * (all_of_them - done) if done else float("nan")
        progress.update(done / all_of_them, left, [f"{done} of {all_of_them}"])

    return tell
