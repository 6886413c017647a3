"""What a bench run prints last: variants against their standards, what was skipped, and the attribution."""

from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import groupby

import numpy as np

from flashperf.benching.session import BenchSession, Row
from flashperf.records import Explanation
from flashperf.stats import MIN_PROCESSES
from flashperf.units import rate, seconds

_WIDTH = 80


def summary_lines(session: BenchSession) -> Iterator[tuple[str, list[str]]]:
    """(title, lines) of every section that has something to say."""
    if session.rows:
        yield "flashperf: variants against their standard", list(_rows(session))
    notes = list(_notes(session))
    if notes:
        yield "flashperf: notes", notes
    if session.explanation:
        yield f"flashperf: {session.explanation.subject}", _attribution(session.explanation)


def _size(row: Row) -> str:
    case = row.measurement.case
    return f"{case.mechanism} {case.backend} {case.dtype} {case.id.rpartition('/')[2]}"


def _rows(session: BenchSession) -> Iterator[str]:
    width = max(len(row.measurement.case.variant) for row in session.rows)
    for size, rows in groupby(session.rows, key=_size):
        yield size
        for row in rows:
            yield _line(row, width)


def _line(row: Row, width: int) -> str:
    m = row.measurement
    median_s = float(np.median(m.samples_s))
    interval = f"{row.ratio.low:.3f} {row.ratio.high:.3f}" if row.blocks > 1 else "1 block"
    ratio = f"{row.ratio.value:.3f} [{interval}]"
    if row.measurement.case == row.standard:
        ratio += " itself"
    work = f"{rate(m.cost.bytes / median_s, 'B/s'):>10}"
    if m.cost.flops:
        work += f" {rate(m.cost.flops / median_s, 'FLOP/s'):>12}"
    error = f"error {m.check.max_abs_error:.1e}, SNR {m.check.snr_db:.0f} dB"
    return f"  {m.case.variant:<{width}} {seconds(median_s):>8}  {ratio:<28} {work}  {error}".rstrip()


def _notes(session: BenchSession) -> Iterator[str]:
    if session.rows:
        counts = sorted({row.processes for row in session.rows})
        some = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else str(counts[0])
        over = f"{some} processes" if counts[-1] > 1 else "the blocks of this one process"
        more = "" if counts[0] >= MIN_PROCESSES else f"; a verdict needs at least {MIN_PROCESSES}"
        yield (
            "times: median per call. Ratios: to the standard, paired, with the interval over "
            f"{over}{more}. itself: the same code on both sides"
        )
        states = sorted({row.measurement.cache_state for row in session.rows})
        samples = sum(len(row.measurement.samples_s) for row in session.rows)
        disturbed = sum(row.measurement.disturbed for row in session.rows)
        yield f"caches {', '.join(states)}; {samples} samples counted"
        if disturbed:
            yield (
                f"disturbed by the machine: {disturbed} tries, either run again and not among the samples "
                "counted, or kept"
            )
        if session.environment.busy:
            yield f"the machine is busy: {session.environment.busy_reason}"
    yield from session.notes
    if session.checked:
        yield f"{session.checked} cases checked, none timed"
    for reason, count in session.skipped.items():
        yield f"{count} case{'s' * (count > 1)} not run here: {reason}"


def _attribution(explanation: Explanation) -> list[str]:
    from flashperf.report import attribution_table, console_for, words

    console = console_for(io.StringIO())
    with console.capture() as captured:
        console.print(attribution_table(explanation), width=_WIDTH)
        for sentence in words(explanation):
            console.print(sentence, width=_WIDTH)
    return [line.rstrip() for line in captured.get().splitlines()]
