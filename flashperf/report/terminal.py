"""An explanation as text of at most 80 columns: tables with rich, plain where the output is piped."""

from __future__ import annotations

import codecs
import io
from typing import IO

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.text import Text

from flashperf.records import Attribution, Explanation
from flashperf.report.numbers import HELPS, clean, effect
from flashperf.report.tables import (
    attribution_table,
    details_table,
    environment_table,
    interactions_table,
    metrics_table,
)
from flashperf.report.words import words, worked

WIDTH = 80
#: one character for one, so that columns still line up
_ASCII = {"→": ">", "×": "x", "±": "~", "µ": "u", "█": "#", "▒": "=", "─": "-", "–": "-"}


def console_for(stream: IO[str] | None = None) -> Console:
    """A console for a stream (default: standard output): colour only on a terminal without NO_COLOR.

    A stream whose encoding lacks a symbol gets its ASCII form instead of an exception.
    """
    codecs.register_error("flashperf", _ascii_instead)
    target = stream
    if isinstance(target, io.TextIOWrapper):
        target.reconfigure(errors="flashperf")
    return Console(file=target, markup=False, highlight=False, emoji=False, soft_wrap=False)


def _ascii_instead(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_ASCII.get(c, "?") for c in error.object[error.start : error.end]), error.end


def print_explanation(explanation: Explanation, console: Console) -> None:
    """Environment, metrics, attribution, interactions and the verdict in words, in that order."""
    if console.is_terminal:
        _print(explanation, console)
        return
    with console.capture() as captured:
        _print(explanation, console)
    text = "".join(line.rstrip() + "\n" for line in captured.get().splitlines())
    console.out(text, end="", highlight=False)


def _print(explanation: Explanation, console: Console) -> None:
    width = min(console.width, WIDTH)
    for title, parts in sections(explanation):
        console.print(Text(title, "bold"), width=width)
        for part in parts:
            console.print(Padding(part, (0, 0, 0, 1), expand=False), width=width)
        console.print()


def sections(explanation: Explanation) -> list[tuple[str, list[RenderableType]]]:
    """(title, what stands under it) in reading order; a new part of the report is one more entry."""
    attribution = explanation.attribution
    parts: list[tuple[str, list[RenderableType]]] = [
        ("Environment", [environment_table(explanation.environment)]),
    ]
    if explanation.metrics:
        parts.append(
            ("Standard against Flash", [metrics_table(explanation.metrics), *_metric_notes(explanation)])
        )
    parts.append(
        (
            f"What made the difference: {clean(explanation.subject)}",
            [attribution_table(explanation), Text(footnotes(attribution), "dim")],
        )
    )
    active = sum(share.active for share in attribution.shares)
    predicted = any(share.predicted for share in attribution.shares)
    if active > 1 or (active and predicted):
        title = "Alone, on top, predicted" if predicted else "Alone and on top"
        title = title if active > 1 else "Predicted"
        notes_below = Text(details_notes(attribution), "dim")
        parts.append((title, [details_table(attribution), notes_below]))
    if active > 1:
        parts.append(("Interactions", [interactions_table(attribution)]))
    notes = dict.fromkeys((*explanation.notes, *attribution.notes))
    if notes:
        parts.append(("Notes", [Text("- " + clean(note)) for note in notes]))
    parts.append(("In words", [Text(sentence) for sentence in words(explanation)]))
    return parts


def _metric_notes(explanation: Explanation) -> list[Text]:
    """A line per note, after the names of the metrics that share it."""
    named: dict[str, list[str]] = {}
    for metric in explanation.metrics:
        named.setdefault(clean(metric.note), []).append(clean(metric.name))
    return [Text(f"{', '.join(names)}: {note}", "dim") for note, names in named.items() if note]


def footnotes(attribution: Attribution) -> str:
    """What the attribution table means and what it rests on."""
    said = "The shares multiply to the measured total; "
    if any(share.percent for share in attribution.shares if share.active):
        gain = effect(attribution.total) == HELPS
        said += f"percent is of the log {'speed-up' if gain else 'slowdown'}; "
    if any(effect(share.share) == HELPS for share in attribution.shares):
        said += "█ slows, ▒ helps; "
    work = f"{worked(attribution)} in {attribution.seconds:.0f} s"
    repeats = f" ({attribution.repeated} repeated, disturbed by the machine)" if attribution.repeated else ""
    return f"{said}{work}{repeats}; stopped: {clean(attribution.stopped)}."


def details_notes(attribution: Attribution) -> str:
    """How to read alone, on top, predicted and unexplained."""
    said = "± is the longer side of the 95 % interval."
    if sum(share.active for share in attribution.shares) > 1:
        said += " Alone: first in; on top: last in; where they differ, the switch interacts."
    if any(share.predicted for share in attribution.shares):
        said += (
            " Predicted: from the isolated kernels, warm – evicted caches; share = predicted × unexplained."
        )
    if attribution.sum_unexplained_log is not None:
        said += f" Sum of |log unexplained|: {attribution.sum_unexplained_log:.2f}."
    return said
