"""The tables of an explanation for the terminal: rich tables of at most 79 columns, one function each."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from flashperf.records import Attribution, Environment, Explanation, Interaction, Metric, Share
from flashperf.report.numbers import (
    HELPS,
    SLOWS,
    UNCLEAR,
    bracketed,
    by_share,
    clean,
    effect,
    fixed,
    percent,
    places_for,
    quantity,
    scale,
    spread,
)
from flashperf.report.words import confirmed_interactions, decimals, interaction_summary, pair_effect

BAR_CELLS = 10
NARROW = 72  # columns; with fewer, a table's numbers may fold
SAME = 0.002  # exact values that are closer than this are not called better or worse
_BOX = box.Box(str(box.SIMPLE_HEAD), ascii=True)  # one rule under the head; kept as it is in any encoding
_STYLES = {SLOWS: "red", HELPS: "green", UNCLEAR: "dim"}


class _Table(Table):
    """Where the terminal is narrow, numbers fold too: rich would give them all the space, and names none."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if options.max_width < NARROW:
            for column in self.columns:
                column.no_wrap = False
        yield from super().__rich_console__(console, options)


def environment_rows(environment: Environment) -> list[tuple[str, str]]:
    """(label, text) of the machine: device, ISA, threads, clocks, load, and whether it was quiet."""
    quota = f", quota {environment.quota_cores:g} cores" if environment.quota_cores else ", no quota"
    clock = f", {environment.clock_mhz:.0f} MHz" if environment.clock_mhz else ""
    load = [environment.busy_reason or "busy"] if environment.busy else []
    said = environment.busy_reason if environment.busy else ""  # a figure that it gives isn't given again
    if environment.load_1min is not None and "load" not in said:
        load.append(f"load {environment.load_1min:.2f}")
    if environment.pressure_some_avg10 is not None and "waited" not in said:
        load.append(f"CPU pressure {environment.pressure_some_avg10:.1f} %")
    versions = [f"{name} {version}" for name, version in environment.versions.items() if "pytest" not in name]
    software = [f"Python {environment.python}", *versions, environment.compiler, environment.driver]
    commit = environment.commit[:12] + (" with changes" if environment.dirty else "")
    rows = [
        ("device", environment.device + clock),
        ("threads", f"{environment.threads} of {environment.cores} cores{quota}"),
        ("ISA", " ".join(environment.isa)),
        ("timer", f"{environment.timer}, resolution {environment.timer_resolution_s * 1e9:.0f} ns"),
        ("machine", f"{'busy' if environment.busy else 'quiet'}: {', '.join(load)}".rstrip(": ")),
        ("software", ", ".join(filter(None, software))),
        ("commit", commit),
    ]
    return [(label, clean(text)) for label, text in rows if text]


def environment_table(environment: Environment) -> Table:
    """The environment block: one line for each thing that could explain a difference between machines."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    for label, text in environment_rows(environment):
        style = ("yellow" if environment.busy else "green") if label == "machine" else ""
        table.add_row(label, Text(text, style))
    return table


def metrics_table(metrics: Sequence[Metric]) -> Table:
    """Metric | Standard | Flash | Flash/Standard, as in the source documents; ± is the 95 % interval."""
    table = _table("metric", "Standard", "Flash", "Flash/Standard", "")
    for metric in metrics:
        present = [interval for interval in (metric.standard, metric.flash) if interval]
        divisor, unit = scale(metric.unit, (interval.value for interval in present))
        name = f"{clean(metric.name)} ({unit})" if unit else clean(metric.name)
        if not present:
            table.add_row(Text(name), Text("not measured", "dim"))
            continue
        places = places_for(present, divisor)
        verdict, style = better(metric)
        table.add_row(
            Text(name),
            quantity(metric.standard, divisor, places),
            quantity(metric.flash, divisor, places),
            bracketed(metric.ratio) if metric.ratio else "",
            Text(verdict, style),
        )
    return table


def better(metric: Metric) -> tuple[str, str]:
    """``better`` or ``worse`` for Flash, where the metric has a good direction and the ratio is clear."""
    if metric.ratio is None or not metric.better:
        return "", ""
    verdict, exact = effect(metric.ratio), metric.ratio.low == metric.ratio.high
    if exact and abs(metric.ratio.value - 1) < SAME:
        return "same", "dim"
    if verdict == UNCLEAR:
        return UNCLEAR, "dim"
    good = (verdict == HELPS) == (metric.better == "lower")
    return ("better", "green") if good else ("worse", "red")


def attribution_table(explanation: Explanation) -> Table:
    """A row per switch, largest slowdown first: levels, share, percent of the log, a bar; then the total."""
    attribution = explanation.attribution
    places = decimals(attribution)
    shares = by_share(attribution.shares)
    widest = max((abs(_log(share)) for share in shares if share.active), default=0.0)
    table = _table("switch", "standard → flash", "share [95 %]", "% of log", "", left=(1, 4))
    for share in shares:
        levels = f"{clean(share.standard)} → {clean(share.flash)}"
        if not share.active:
            table.add_row(Text(clean(share.switch)), Text(levels), "1", "", Text("inactive", "dim"))
            continue
        verdict = effect(share.share)
        value = Text(bracketed(share.share, places), _STYLES[verdict])
        table.add_row(
            Text(clean(share.switch)), Text(levels), value, percent(share.percent), _bar(share, widest)
        )
    table.add_section()
    whole = "100" if any(share.percent for share in shares if share.active) else ""
    table.add_row(Text("total", "bold"), "", Text(bracketed(attribution.total, places), "bold"), whole, "")
    return table


def _log(share: Share) -> float:
    return math.log(share.share.value) if 0 < share.share.value < math.inf else 0.0


def _bar(share: Share, widest: float) -> Text:
    """A bar as long as the share is large on the log scale, lighter where it helps; or ``can't tell``."""
    verdict = effect(share.share)
    if verdict == UNCLEAR or not widest:
        return Text(UNCLEAR, "dim")
    cells = max(1, round(BAR_CELLS * abs(_log(share)) / widest))
    if verdict == SLOWS:
        return Text("█" * cells, "red")
    return Text("▒" * cells, "green")


def details_table(attribution: Attribution) -> Table:
    """Per active switch: share, alone (first in), on top (last in), predicted and unexplained, as value ±.

    Of a single one alone and on top are its share, and are left out.
    """
    places = decimals(attribution)
    predicted = any(share.predicted for share in attribution.shares)
    several = sum(share.active for share in attribution.shares) > 1
    titles = ["switch", "share", *["alone", "on top"] * several, *["predicted", "unexplained"] * predicted]
    table = _table(*titles, left=())
    for share in by_share(attribution.shares):
        if not share.active:
            continue
        cells = [
            spread(interval, places) for interval in (share.share, *(share.alone, share.on_top) * several)
        ]
        if predicted:
            cells.append(_predictions(share, places))
            cells.append(spread(share.unexplained, places) if share.unexplained else "-")
        table.add_row(Text(clean(share.switch)), *cells)
    return table


def _predictions(share: Share, places: int) -> str:
    """``1.20 – 2.01``: with warm and with evicted caches; one number where there is only one."""
    both = [side for side in (share.predicted, share.predicted_cold) if side and not math.isnan(side.value)]
    dash = " – " if places < 3 else "–"  # within 80 columns
    return dash.join(fixed(side.value, places) for side in both) or "-"


def interactions_table(attribution: Attribution) -> RenderableType:
    """Confirmed pairs: time of both over the product of their own effects; or ``none found above x %``."""
    pairs = confirmed_interactions(attribution)
    if not pairs:
        return Text(interaction_summary(attribution))
    places = decimals(attribution)
    table = _table("pair", "together/product", "others standard", "others flash", "")
    for pair in pairs:
        table.add_row(*_pair_cells(pair, lambda interval: spread(interval, places)))
    return Group(table, Text("Above 1 they cost more together than their own effects multiplied.", "dim"))


def _pair_cells(pair: Interaction, write: Callable) -> list[Text | str]:
    joint = pair_effect(pair)
    reading = {SLOWS: "cost more", HELPS: "cost less", UNCLEAR: UNCLEAR}[effect(joint)]
    name = " + ".join(clean(switch) for switch in pair.switches)
    sides = [write(pair.ratio_on_standard), write(pair.ratio_on_flash)]
    return [Text(name), bracketed(joint), *sides, Text(reading, _STYLES[effect(joint)])]


def _table(*titles: str, left: tuple[int, ...] = (-1,)) -> Table:
    """A table without outer lines: the first and the ``left`` columns left-aligned, numbers right-aligned."""
    table = _Table(box=_BOX, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False, header_style="bold")
    lefts = {0, *(column % len(titles) for column in left)}
    for n, title in enumerate(titles):
        words_wrap = n == 0 or n in lefts
        table.add_column(
            Text(title),
            justify="left" if n in lefts else "right",
            no_wrap=not words_wrap,
            overflow="fold",
            min_width=len(title) if n == 0 else None,  # a name may fold, never vanish
        )
    return table
