"""A gate report as text for a terminal and as markdown for a pull request."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

from flashperf.gate.outcome import GateReport, Outcome, suite_line
from flashperf.gate.rule import CANT_TELL, NO_SLOWER, SLOWER
from flashperf.store import to_json
from flashperf.units import seconds

#: The order of a report: what has to be acted on comes first.
_ORDER = ("failed", SLOWER, "missing", "new", "not comparable", CANT_TELL, "faster", NO_SLOWER, "equivalent")
_LONGEST_NAME = 60


def verdict_word(outcome: Outcome) -> str:
    """``no slower than 5 %``, ``slower than 5 %``, ``within 5 %``, or the word as it is."""
    if outcome.verdict is None:
        return outcome.word
    limit = f"{100 * outcome.verdict.threshold:.3g} %"
    texts = {
        SLOWER: f"slower than {limit}",
        NO_SLOWER: f"no slower than {limit}",
        "equivalent": f"within {limit}",
    }
    return texts.get(outcome.word, outcome.word)


def percent(ratio: float) -> str:
    """A ratio as a signed change: 1.05 is ``+5.0 %``; beyond a factor of 2 as a factor."""
    if not math.isfinite(ratio) or ratio <= 0:
        return "?"
    if 0.5 <= ratio <= 2:
        return f"{100 * (ratio - 1):+.1f} %"
    return f"x{ratio:.3g}"


def _change(outcome: Outcome) -> str:
    if outcome.verdict is not None:
        ratio = outcome.verdict.ratio
        bounded = ratio.low > 0 and math.isfinite(ratio.high)
        interval = f" [{percent(ratio.low)}, {percent(ratio.high)}]" if bounded else ""
        return percent(ratio.value) + interval
    if outcome.times_s is not None:
        return percent(outcome.times_s[1] / outcome.times_s[0])
    return ""


def _reason(outcome: Outcome) -> str:
    reason = outcome.verdict.reason if outcome.verdict is not None else ""
    return "; ".join(filter(None, (reason, outcome.detail)))


def short_name(name: str) -> str:
    """The part of a pytest id that tells benches apart: what is in its brackets, else the whole."""
    head, bracket, tail = name.partition("[")
    return tail.rstrip("]") if bracket and tail.rstrip("]") else head


def _sorted(report: GateReport) -> list[Outcome]:
    return sorted(report.outcomes, key=lambda outcome: _ORDER.index(outcome.word))


def lines(report: GateReport) -> Iterator[str]:
    """For a terminal: a line a bench, those to act on first, notes, and the sentence on the suite."""
    yield f"{report.now} against {report.before}; change of time with its 95 % interval"
    names = {outcome.name: _names(report)[outcome.name] for outcome in report.outcomes}
    width = min(_LONGEST_NAME, max((len(name) for name in names.values()), default=0))
    words = max((len(verdict_word(o)) for o in report.outcomes), default=0)
    for outcome in _sorted(report):
        text = f"{verdict_word(outcome):<{words}}  {names[outcome.name]:<{width}}  {_change(outcome)}"
        reason = _reason(outcome)
        yield text.rstrip()
        if reason and outcome.word not in ("faster", NO_SLOWER, "equivalent"):
            yield f"{'':<{words}}  {reason}"
    yield from report.notes
    yield suite(report)


def _names(report: GateReport) -> dict[str, str]:
    """Short names, or the full ones where two would be the same."""
    short = {outcome.name: short_name(outcome.name) for outcome in report.outcomes}
    counts = list(short.values())
    return {name: text if counts.count(text) == 1 else name for name, text in short.items()}


def suite(report: GateReport) -> str:
    """The sentence on the suite."""
    thresholds = [o.verdict.threshold for o in report.outcomes if o.verdict is not None] or [0.0]
    return suite_line(report, thresholds)


def markdown(report: GateReport) -> str:
    """For a pull request: the sentence, a table of what needs a look, and the rest folded away."""
    names = _names(report)
    loud = [o for o in _sorted(report) if o.word not in (NO_SLOWER, "equivalent")]
    quiet = [o for o in _sorted(report) if o.word in (NO_SLOWER, "equivalent")]
    parts = [f"### Benchmarks: {suite(report)}", "", f"{report.now} against {report.before}.", ""]
    if loud:
        parts += [*_table(loud, names), ""]
    if quiet:
        plural = "es" if len(quiet) > 1 else ""
        parts += ["<details>", f"<summary>{len(quiet)} bench{plural} no slower</summary>", ""]
        parts += [*_table(quiet, names), "", "</details>", ""]
    parts += [f"- {_cell(note)}" for note in report.notes]
    return "\n".join(parts).rstrip() + "\n"


def _table(outcomes: list[Outcome], names: dict[str, str]) -> Iterator[str]:
    yield "| bench | verdict | change (95 % interval) | before | now | why |"
    yield "|---|---|---:|---:|---:|---|"
    for outcome in outcomes:
        times = [seconds(t) for t in outcome.times_s] if outcome.times_s else ["", ""]
        cells = [names[outcome.name], verdict_word(outcome), _change(outcome), *times, _reason(outcome)]
        yield "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _cell(text: str) -> str:
    """Text that stays in its cell, whatever a bench is called."""
    safe = text.replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|").replace("`", "'")
    return " ".join(safe.replace("@", "&#64;").split())


def as_json(report: GateReport) -> dict[str, Any]:
    """The whole report as plain JSON, with the plain 95 % intervals."""
    return {"suite": suite(report), "passed": report.passed, **to_json(report)}


def dumps(report: GateReport) -> str:
    """``as_json`` as text."""
    return json.dumps(as_json(report), indent=1, ensure_ascii=False)
