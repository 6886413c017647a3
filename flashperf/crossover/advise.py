"""Crossovers of all mechanisms on this machine, as a table of advice that a dispatcher can load."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from flashperf import registry
from flashperf.advice import SCHEMA, Rule
from flashperf.crossover import CrossoverResult, Subject, crossover_of, replay, subject_of
from flashperf.crossover.result import advice_words
from flashperf.errors import UserError
from flashperf.progress import NullProgress, ProgressSink
from flashperf.workers import WorkerError

LEAST_SHARE_S = 5.0
INTERRUPTED = "interrupted"
RECORDS = "crossover-*.jsonl"
#: Whose question isn't its standard against its flash variant: both of these are in use, and lengths decide.
PAIRS: Mapping[str, tuple[str, str]] = {"batching": ("packed", "padded")}


@dataclasses.dataclass(frozen=True)
class Advised:
    """One line of the table: a rule and what it rests on; or why there is none. ``broke``: a process died."""

    title: str
    rule: Rule | None
    result: CrossoverResult | None
    why_not: str = ""
    broke: bool = False


def subjects(names: Sequence[str], backend: str) -> Iterator[Subject]:
    """Each mechanism with each combination of words among its bench sizes (such as ``op=softmax``)."""
    for name in names:
        seen: list[dict[str, int | str]] = []
        for sizes in registry.mechanism(name).bench_sizes:
            words: dict[str, int | str] = {
                key: value for key, value in sizes.items() if isinstance(value, str)
            }
            if words not in seen:
                seen.append(words)
                yield subject_of(name, between=PAIRS.get(name), sizes=words, backend=backend)


def advise(
    names: Sequence[str],
    *,
    backend: str = "cpu",
    budget_s: float,
    high: int | None = None,
    folder: Path | None = None,
    progress: ProgressSink | None = None,
    finished: Callable[[Sequence[Advised]], object] = lambda found: None,
) -> list[Advised]:
    """Find the crossover of two variants of every mechanism; ``folder`` keeps a record of each.

    The time is shared out evenly over what is left, at least LEAST_SHARE_S each. What can't run here, or for which
    not even three sizes fit into its time, or whose process dies, is in the table with its reason; after Ctrl-C, what
    was not reached too.
    ``finished`` is told all lines so far after each. Raises WrongResult for a wrong kernel.
    """
    todo = list(subjects(names, backend))
    began = time.monotonic()
    found: list[Advised] = []
    for number, subject in enumerate(todo):
        left_s = budget_s - (time.monotonic() - began)
        share_s = max(LEAST_SHARE_S, left_s / (len(todo) - number))
        told = _Overall(progress or NullProgress(), subject, number, len(todo), share_s)
        try:
            found.append(_advised(subject, share_s, high, folder, told))
        except KeyboardInterrupt:
            return found + [Advised(left.title, None, None, INTERRUPTED) for left in todo[number:]]
        told.phase("advise", f"{found[-1].title}: {_said(found[-1])}")
        finished(found)
    return found


class _Overall:
    """Turns the progress of one crossover into that of all."""

    def __init__(self, sink: ProgressSink, subject: Subject, number: int, count: int, share_s: float) -> None:
        self._sink, self._number, self._count, self._share_s = sink, number, count, share_s
        sink.phase("advise", f"{number + 1} of {count}, {subject.title}: {subject.a} or {subject.b}?")

    def phase(self, name: str, detail: str) -> None:
        if name == "advise":
            self._sink.phase(name, detail)

    def update(self, fraction: float, seconds_left: float, lines: Sequence[str]) -> None:
        after_s = self._share_s * (self._count - self._number - 1)
        self._sink.update((self._number + fraction) / self._count, seconds_left + after_s, lines)


def _advised(
    subject: Subject, share_s: float, high: int | None, folder: Path | None, progress: ProgressSink
) -> Advised:
    title = subject.title
    record = folder / RECORDS.replace("*", title.replace(" ", "-")) if folder else None
    try:
        result = _one(subject, share_s, high, record, progress)
    except UserError as error:
        if "wrong result" in str(error):
            raise
        return Advised(title, None, None, str(error))
    except WorkerError as error:
        return Advised(title, None, None, str(error), broke=True)
    return Advised(title, rule_of(subject, result), result)


def _one(
    subject: Subject, budget_s: float, high: int | None, record: Path | None, progress: ProgressSink
) -> CrossoverResult:
    return crossover_of(
        subject.mechanism,
        between=(subject.a, subject.b),
        sizes=subject.sizes,
        backend=subject.backend,
        high=high,
        budget_s=budget_s,
        record=record,
        progress=progress,
    )


def again(folder: Path) -> list[Advised]:
    """The lines that the records of a folder give, also of a run that was cut off. Raises UserError if it has none."""
    paths = sorted(folder.glob(RECORDS))
    if not paths:
        raise UserError(f"{folder} has no {RECORDS}, which flashperf advise writes")
    found = []
    for path in paths:
        try:
            plan, result = replay(path)
            subject = subject_of(
                plan.mechanism,
                axis=plan.axis,
                between=plan.names,
                sizes=plan.fixed,
                backend=plan.backend,
                dtype=plan.dtype,
            )
        except UserError as error:
            title = path.stem.removeprefix(RECORDS.partition("*")[0]).replace("-", " ")
            found.append(Advised(title, None, None, str(error)))
            continue
        found.append(Advised(subject.title, rule_of(subject, result), result))
    return found


def rule_of(subject: Subject, result: CrossoverResult) -> Rule:
    """The rule that a result gives.

    Where some sizes are open and one side is faster at all others, that side; where nothing can be told, the first
    of the two, which is the standard variant, and ``decided`` is False.
    """
    finding, parts = result.finding, result.parts
    uses, said = tuple(part.use for part in parts), advice_words(result)
    if not parts and finding.faster and finding.unknown:
        uses = (result.name(finding.faster),)
        low, high = finding.unknown
        where = "at many sizes" if (low, high) == result.range else f"from {low} to {high}"
        said = f"{uses[0]}; can't tell {where}"
    elif not parts:
        said = f"can't tell: {subject.a}"
    low, high = result.range
    return Rule(
        mechanism=subject.mechanism,
        backend=subject.backend,
        dtype=subject.dtype,
        fixed=subject.fixed,
        axis=subject.axis.name,
        keys=subject.axis.keys,
        low=low,
        high=high,
        thresholds=tuple(part.first for part in parts[1:]),
        use=uses or (subject.a,),
        decided=bool(uses),
        words=said,
        note=f"cut: no time for {high + 1} to {result.asked[1]}" if high < result.asked[1] else "",
    )


def _said(line: Advised) -> str:
    return line.rule.sentence if line.rule else line.why_not


def write_advice(found: Sequence[Advised], path: Path) -> Path:
    """Write the rules as JSON, with the machine that they are for. Raises UserError if the file can't be written."""
    device = next((a.result.environment.device for a in found if a.result), "")
    data = {
        "program": "flashperf advise",
        "schema": SCHEMA,
        "device": device,
        "busy": next(filter(None, (a.result.environment.busy_reason for a in found if a.result)), ""),
        "rules": [dataclasses.asdict(a.rule) for a in found if a.rule],
        "left_out": [[a.title, a.why_not] for a in found if not a.rule],
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise UserError(f"can't write {path}: {error.strerror}") from error
    return path
