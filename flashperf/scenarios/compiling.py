"""compile: how often does torch.compile compile, what do first and later calls take, and when has it paid?

Static shapes, dynamic ones and what it does by itself, over lengths that all are the same and that grow by one;
two models: one of library products, one of elementwise operators. A fresh process for every sample.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flashperf.cases.guards import cxx_compiler, torch_installed
from flashperf.records import Interval
from flashperf.scenarios.compile_story import EAGER, MODES
from flashperf.scenarios.definition import Cell, Findings, Line, Quantity, Recorder, Scenario, Table, Total
from flashperf.scenarios.pairs import MARGIN
from flashperf.scenarios.warmup import break_even
from flashperf.stats import compare_log_ratios, t_interval
from flashperf.workers import Worker

LEAST_PROCESSES, MOST_PROCESSES = 2, 8
_LIMIT_S = 180.0
_SERIES = {"same length": [16] * 12, "growing length": list(range(5, 17))}
_MODELS = {"mlp": "two products", "chain": "twenty elementwise operators"}


def measure(run: Recorder) -> None:
    """Processes of every mode and series, in random order, until the budget is spent."""
    rng = np.random.default_rng(run.seed)
    combinations = [(mode, series) for mode in (EAGER, *MODES) for series in _SERIES]
    for number in range(MOST_PROCESSES):
        for index in rng.permutation(len(combinations)):
            if number >= LEAST_PROCESSES and run.left_s <= 0:
                return
            mode, series = combinations[index]
            worker = Worker(number)
            try:
                subject = "flashperf.scenarios.compile_story:CompileSubject"
                options = {"seed": run.seed + number}
                worker.ask("start", subject=subject, options=options, standard={}, flash={})
                for model in _MODELS:
                    story = worker.call("tell", _LIMIT_S, mode=mode, model=model, lengths=_SERIES[series])
                    run.write("story", process=number, mode=mode, series=series, model=model, **story)
            finally:
                worker.stop()
            run.tell(f"process {number + 1}, {mode}, {series}")


def analyse(lines: Sequence[Line]) -> Findings:
    """A table for each model and series: compilations, first call, mean, later calls, break-even."""
    stories: dict[tuple[str, str], dict[str, dict[int, Line]]] = {}
    for line in lines:
        if line["kind"] == "story":
            group = stories.setdefault((line["model"], line["series"]), {})
            group.setdefault(line["mode"], {})[line["process"]] = line
    tables, totals = [], []
    for model, about in _MODELS.items():
        for series in _SERIES:
            group = stories.get((model, series), {})
            rows = [row for mode in (EAGER, *MODES) if (row := _row(mode, group))]
            if rows:
                title = f"{model} ({about}), {series}"
                columns = (
                    "mode",
                    "compiled",
                    "first call",
                    "mean call",
                    "later",
                    "/ eager",
                    "pays after calls",
                )
                tables.append(Table(title, columns, tuple(rows)))
            if (total := _total(model, series, group)) is not None:
                totals.append(total)
    return Findings(tuple(totals), tuple(tables), _sentences(totals))


def _row(mode: str, group: dict[str, dict[int, Line]]) -> tuple[Cell, ...] | None:
    """One mode: counts and times over its processes."""
    own, eager = group.get(mode, {}), group.get(EAGER, {})
    both = sorted(set(own) & set(eager))
    if len(both) < 2:
        return None
    count = float(np.mean([line["compilations"] for line in own.values()]))
    first = np.array([own[n]["times_s"][0] for n in both])
    mean = np.array([np.mean(own[n]["times_s"]) for n in both])
    later = np.array([own[n]["steady_s"] for n in both])
    cells: list[Cell] = [mode, f"{count:g}", *(Quantity(t_interval(x), "s") for x in (first, mean, later))]
    if mode == EAGER:
        return (*cells, "", "")
    base = np.array([eager[n]["steady_s"] for n in both])
    ratio = compare_log_ratios(np.log(later / base), MARGIN).ratio
    spent = (
        np.array([np.sum(own[n]["times_s"]) for n in both]),
        np.array([np.sum(eager[n]["times_s"]) for n in both]),
    )
    return (*cells, Quantity(ratio, "ratio"), pays_after(spent, (later, base)))


def pays_after(spent_s: tuple[np.ndarray, np.ndarray], later_s: tuple[np.ndarray, np.ndarray]) -> str:
    """Later calls after which what the first ones took longer is made up: a number with its interval, or never.

    spent_s: seconds of the first calls together, compiled and eager; later_s: of each call after them.
    """
    saving = t_interval(later_s[1] - later_s[0])
    if saving.high <= 0:
        return "never"
    if saving.low <= 0:
        return "can't tell"
    calls = break_even(spent_s, later_s)
    return _calls(calls)


def _calls(calls: Interval) -> str:
    """With its interval where that is one of positive numbers; else roughly, by its first digit."""
    if calls.low <= 0 or not np.isfinite(calls.high):
        return f"about {float(f'{calls.value:.1g}'):,.0f}"
    return f"{calls.value:,.0f} [{calls.low:,.0f} {calls.high:,.0f}]"


def _total(model: str, series: str, group: dict[str, dict[int, Line]]) -> Total | None:
    """Mean call of what torch.compile does by itself, over the eager one."""
    own, eager = group.get("automatic", {}), group.get(EAGER, {})
    both = sorted(set(own) & set(eager))
    if len(both) < 2:
        return None
    logs = [np.log(np.mean(own[n]["times_s"]) / np.mean(eager[n]["times_s"])) for n in both]
    found = compare_log_ratios(logs, MARGIN)
    return Total(f"{model}, {series}: mean of the first calls, compiled / eager", found.ratio, found.verdict)


def _sentences(totals: Sequence[Total]) -> tuple[str, ...]:
    if not totals:
        return ()
    return ("A mean over first calls is the compiler's time; later calls stand apart.",)


SCENARIO = Scenario(
    name="compile",
    question="How often does torch.compile compile, what do first and later calls take, and when has it paid off?",
    claims=("A13", "A16", "B4"),
    measure=measure,
    analyse=analyse,
    requires=(torch_installed, cxx_compiler),
    budget_s=180.0,
)
