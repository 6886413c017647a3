"""warmup: what does it take until the first answer, what does a call take after that, and when has a slow start paid?

Standard and Flash of the pipeline, a fresh process for every sample: from starting it until the model is there,
until the first task is done (binding and packing included), and the median of the tasks after it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from flashperf.pipeline.subject import PipelineSubject
from flashperf.pipeline.switches import STANDARD, parse_levels
from flashperf.records import Interval
from flashperf.scenarios.definition import Cell, Findings, Line, Quantity, Recorder, Scenario, Table, Total
from flashperf.scenarios.pairs import MARGIN
from flashperf.stats import compare_log_ratios, ratio_of_means_interval, t_interval
from flashperf.workers import Worker

LEAST_PAIRS, MOST_PAIRS = 3, 20
STEADY_TASKS = 7
FLASH = "a"
_VARIANTS = ("standard", "flash")
_STAGES = ("process and model", "first task", "task after that")


class WarmupSubject:
    """One variant of the pipeline that has done nothing yet."""

    def __init__(self, flash: str) -> None:
        self.levels: Mapping[str, str] = {**STANDARD, **(parse_levels(flash) if flash else {})}
        self.subject = PipelineSubject("small", "single")

    def first(self) -> float:
        """Seconds of binding and running the first task."""
        begin = time.perf_counter()
        self.subject.prepare(self.levels)
        self.subject.run(self.levels)
        return time.perf_counter() - begin

    def steady(self, tasks: int) -> list[float]:
        """Seconds of each of the tasks that follow."""
        return [self.subject.run(self.levels)["seconds"] for _ in range(tasks)]


def measure(run: Recorder) -> None:
    """Pairs of fresh processes, either variant first at random, until the budget is spent."""
    rng = np.random.default_rng(run.seed)
    spent_s = 0.0
    for number in range(MOST_PAIRS):
        if number >= LEAST_PAIRS and run.left_s < 1.5 * spent_s / number:
            return
        begin_s = run.left_s
        for variant in rng.permutation(_VARIANTS):
            run.write("sample", pair=number, variant=str(variant), **_sample(str(variant)))
            run.tell(f"process {2 * number + 1}, {variant}")
        spent_s += begin_s - run.left_s


def _sample(variant: str) -> dict[str, Any]:
    """One process from its start to its last task."""
    begin = time.perf_counter()
    worker = Worker(0)
    try:
        options = {"flash": FLASH if variant == "flash" else ""}
        subject = "flashperf.scenarios.warmup:WarmupSubject"
        worker.ask("start", subject=subject, options=options, standard={}, flash={})
        start_s = time.perf_counter() - begin
        return {
            "start_s": start_s,
            "first_s": worker.call("first"),
            "steady_s": worker.call("steady", tasks=STEADY_TASKS),
        }
    finally:
        worker.stop()


def analyse(lines: Sequence[Line]) -> Findings:
    """Stages of both variants, the ratio until the first answer and after it, and the break-even number of tasks."""
    pairs: dict[int, dict[str, Line]] = {}
    for line in lines:
        if line["kind"] == "sample":
            pairs.setdefault(line["pair"], {})[line["variant"]] = line
    whole = [pair for pair in pairs.values() if len(pair) == 2]
    if len(whole) < 2:
        return Findings((), (), (), ("too few samples: fewer than two pairs of processes were measured",))
    stages = {variant: np.array([_stages(pair[variant]) for pair in whole]) for variant in _VARIANTS}
    answer = {variant: times[:, 0] + times[:, 1] for variant, times in stages.items()}
    totals = (
        _total("until the first answer, Flash / Standard", answer["standard"], answer["flash"]),
        _total("a task after that, Flash / Standard", stages["standard"][:, 2], stages["flash"][:, 2]),
    )
    rows = tuple(
        _row(stage, stages["standard"][:, n], stages["flash"][:, n]) for n, stage in enumerate(_STAGES)
    )
    note = f"Means over {len(whole)} pairs of processes; the median of {STEADY_TASKS} tasks in each."
    table = Table("From the start of a process", ("stage", "Standard", "Flash", "ratio"), rows, note)
    return Findings(totals, (table,), (break_even_words(totals[0], stages, answer),))


def _row(stage: str, standard_s: np.ndarray, flash_s: np.ndarray) -> tuple[Cell, ...]:
    times = (Quantity(t_interval(x), "s") for x in (standard_s, flash_s))
    return (stage, *times, Quantity(_total("", standard_s, flash_s).ratio, "ratio"))


def _stages(line: Line) -> tuple[float, float, float]:
    return line["start_s"], line["first_s"], statistics.median(line["steady_s"])


def _total(what: str, base: np.ndarray, other: np.ndarray) -> Total:
    found = compare_log_ratios(np.log(other / base), MARGIN)
    return Total(what, found.ratio, found.verdict)


def break_even(first_s: tuple[np.ndarray, np.ndarray], later_s: tuple[np.ndarray, np.ndarray]) -> Interval:
    """Calls after which the total time of both is the same: extra start / saving per call, with Fieller's interval.

    first_s: seconds until the first answer of the one that starts slower and of the other; later_s: seconds of
    each call after that, in the same order; all of shape (processes,).
    """
    return ratio_of_means_interval(first_s[0] - first_s[1], later_s[1] - later_s[0])


def break_even_words(first: Total, stages: Mapping[str, np.ndarray], answer: Mapping[str, np.ndarray]) -> str:
    """When the variant that starts slower has made up for it; ``first``: Flash's first answer over Standard's."""
    if first.verdict not in ("slower", "faster"):
        return "Which of the two gives its first answer sooner can't be told."
    slow, fast = ("flash", "standard") if first.verdict == "slower" else ("standard", "flash")
    later = stages[slow][:, 2], stages[fast][:, 2]
    name = {"flash": "Flash", "standard": "Standard"}[slow]
    extra_s = float((answer[slow] - answer[fast]).mean())
    said = f"{name} needs {1e3 * extra_s:.0f} ms more until its first answer"
    saving = t_interval(later[1] - later[0])
    if saving.low <= 0 <= saving.high:
        return f"{said}; whether it makes up for them later can't be told."
    if saving.value < 0:
        return f"{said}, and its tasks take longer too: it never makes up for them."
    calls = break_even((answer[slow], answer[fast]), later)
    return f"{said}; it has made up for them after {calls.value:.1f} more tasks [{calls.low:.1f} {calls.high:.1f}]."


SCENARIO = Scenario(
    name="warmup",
    question="What does it take until the first answer, what after that, and when has a slower start paid off?",
    claims=("A18", "B18"),
    measure=measure,
    analyse=analyse,
)
