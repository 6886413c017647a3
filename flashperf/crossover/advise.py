"""Crossovers of all mechanisms on this machine, as a table of advice that a dispatcher can load."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from flashperf import registry
from flashperf.advice import SCHEMA, Rule
from flashperf.crossover import CrossoverResult, crossover_of, subject_of
from flashperf.crossover.result import advice_words
from flashperf.errors import UserError
from flashperf.progress import ProgressSink
from flashperf.records import Mechanism

LEAST_SHARE_S = 5.0
INTERRUPTED = "interrupted"


@dataclasses.dataclass(frozen=True)
class Advised:
    """One line of the table: a rule and what it rests on; or why there is none."""

    title: str
    rule: Rule | None
    result: CrossoverResult | None
    why_not: str = ""


def subjects(names: Sequence[str], backend: str) -> Iterator[tuple[Mechanism, dict[str, int | str]]]:
    """Each mechanism with each combination of words among its bench sizes (such as ``op=softmax``)."""
    for name in names:
        mechanism = registry.mechanism(name)
        seen: list[dict[str, int | str]] = []
        for sizes in mechanism.bench_sizes:
            words: dict[str, int | str] = {
                key: value for key, value in sizes.items() if isinstance(value, str)
            }
            if words not in seen:
                seen.append(words)
                yield mechanism, words


def advise(
    names: Sequence[str],
    *,
    backend: str = "cpu",
    budget_s: float,
    high: int | None = None,
    folder: Path | None = None,
    progress: ProgressSink | None = None,
) -> list[Advised]:
    """Find the crossover of standard and flash of every mechanism; ``folder`` keeps a record of each.

    The time is shared out evenly over what is left, at least LEAST_SHARE_S each. What can't run here, or for which
    not even three sizes fit into its time, is in the table with its reason; after Ctrl-C, what was not reached too.
    Raises WrongResult for a wrong kernel.
    """
    todo = list(subjects(names, backend))
    began = time.monotonic()
    found: list[Advised] = []
    for n, (mechanism, words) in enumerate(todo):
        left_s = budget_s - (time.monotonic() - began)
        share_s = max(LEAST_SHARE_S, left_s / (len(todo) - n))
        title = " ".join([mechanism.name, *map(str, words.values())])
        record = folder / f"crossover-{title.replace(' ', '-')}.jsonl" if folder else None
        try:
            result = _one(mechanism, words, backend, share_s, high, record, progress)
        except KeyboardInterrupt:
            left = [" ".join([m.name, *map(str, w.values())]) for m, w in todo[n:]]
            return found + [Advised(title, None, None, INTERRUPTED) for title in left]
        except UserError as error:
            if "wrong result" in str(error):
                raise
            found.append(Advised(title, None, None, str(error)))
            continue
        found.append(Advised(title, rule_of(mechanism, words, result, backend), result))
    return found


def _one(
    mechanism: Mechanism,
    words: dict[str, int | str],
    backend: str,
    budget_s: float,
    high: int | None,
    record: Path | None,
    progress: ProgressSink | None,
) -> CrossoverResult:
    return crossover_of(
        mechanism.name,
        sizes=words,
        backend=backend,
        high=high,
        budget_s=budget_s,
        record=record,
        progress=progress,
    )


def rule_of(mechanism: Mechanism, words: dict[str, int | str], result: CrossoverResult, backend: str) -> Rule:
    """The rule that a result gives.

    Where some sizes are open and one side is faster at all others, that side; where nothing can be told, the
    standard variant, and ``decided`` is False.
    """
    subject = subject_of(mechanism.name, sizes=words, backend=backend)
    finding, parts = result.finding, result.parts
    uses, said = tuple(part.use for part in parts), advice_words(result)
    if not parts and finding.faster and finding.unknown:
        uses = (result.name(finding.faster),)
        low, high = finding.unknown
        said = f"{uses[0]}; can't tell from {low} to {high}"
    elif not parts:
        said = f"can't tell: {mechanism.standard}"
    return Rule(
        mechanism=mechanism.name,
        backend=backend,
        dtype=subject.dtype,
        fixed=subject.fixed,
        axis=subject.axis.name,
        keys=subject.axis.keys,
        low=result.range[0],
        high=result.range[1],
        thresholds=tuple(part.first for part in parts[1:]),
        use=uses or (mechanism.standard,),
        decided=bool(uses),
        words=said,
    )


def write_advice(found: Sequence[Advised], path: Path) -> Path:
    """Write the rules as JSON, with the machine that they are for. Raises UserError if the file can't be written."""
    device = next((a.result.environment.device for a in found if a.result), "")
    data = {
        "program": "flashperf advise",
        "schema": SCHEMA,
        "device": device,
        "rules": [dataclasses.asdict(a.rule) for a in found if a.rule],
        "left_out": [[a.title, a.why_not] for a in found if not a.rule],
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise UserError(f"can't write {path}: {error.strerror}") from error
    return path
