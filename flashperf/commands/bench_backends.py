"""``flashperf bench MECHANISM``: every variant on every backend in one table, error beside speed.

What can't run here says why. Emulator and interpreter only check kernels, and are never timed.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from flashperf import environment, registry
from flashperf.benching.rows import standard_of
from flashperf.errors import EXIT_FAILED, EXIT_OK, UserError
from flashperf.measure import limited_threads, measure_pair
from flashperf.problem import WrongResult
from flashperf.records import Case, Interval, Measurement, Mechanism, Sizes
from flashperf.report import console_for
from flashperf.stats import ratio_interval
from flashperf.store import RecordWriter
from flashperf.suggest import unknown_name
from flashperf.units import seconds

BUDGET_S = 20.0
BACKENDS = "cpu,cuda,triton"
_LEAST_S = 0.2  # of a case
_VARIANT_WIDTH, _TIMED_WIDTH, _UNTIMED_WIDTH = 16, 45, 10  # of a column


@dataclass(frozen=True)
class Cell:
    """One case: its measurement and its time over its standard's, or why it has none."""

    case: Case
    standard: Case
    measurement: Measurement | None = None
    ratio: Interval | None = None
    reason: str = ""
    wrong: bool = False

    def texts(self) -> tuple[str, str, str]:
        """Time, ratio to the standard, largest error; where there is no time, a word about that."""
        if self.measurement is None:
            return ("wrong" if self.wrong else "not here"), "", ""
        ratio = self.ratio
        told = "standard"
        if self.case != self.standard and ratio is not None:
            told = f"{ratio.value:.2f}x [{ratio.low:.2f} {ratio.high:.2f}]"
        median_s = float(np.median(self.measurement.samples_s))
        return seconds(median_s), told, f"error {self.measurement.check.max_abs_error:.1e}"


def parse_size(text: str) -> dict[str, int | str]:
    """``m=128-k=512-n=512`` as sizes. Raises UserError for anything else."""
    pairs = [part.partition("=") for part in text.split("-")]
    if not all(name.isidentifier() and value.isalnum() for name, _, value in pairs):
        raise UserError(f"a size is written as in a case's name, m=128-k=512, not {text!r}")
    return {name: int(value) if value.isdigit() else value for name, _, value in pairs}


def chosen_cases(
    mechanism: Mechanism, backends: Sequence[str], dtype: str | None, size: str | None
) -> list[Case]:
    """The cases of the table: the same sizes on every backend, since only those can stand side by side."""
    if dtype is not None and dtype not in mechanism.dtypes:
        raise UserError(unknown_name(f"dtype of {mechanism.name}", dtype, mechanism.dtypes))
    for name in backends:
        registry.backend(name)  # raises for one that doesn't exist
    sizes: Sequence[Sizes] = (
        [parse_size(size)]
        if size is not None
        else mechanism.sizes("bench", "cpu" if "cpu" in backends else backends[0])
    )
    if sizes[0].keys() not in [one.keys() for one in (*mechanism.bench_sizes, *mechanism.test_sizes)]:
        needed = ", ".join(mechanism.bench_sizes[0])
        raise UserError(f"sizes of {mechanism.name} are {needed}, got {', '.join(sizes[0])}")
    if size is not None:
        _check_values(mechanism, sizes[0])
    order = sorted(mechanism.variants, key=lambda variant: variant != mechanism.standard)
    return [
        Case.of(mechanism.name, variant, name, dtype or mechanism.dtypes[0], one)
        for one in sizes
        for variant in order
        for name in backends
        if name in mechanism.variants[variant]
    ]


def _check_values(mechanism: Mechanism, sizes: Sizes) -> None:
    """Raise UserError for a word where the mechanism has a number, and for a word that none of its sizes has."""
    own = (*mechanism.test_sizes, *mechanism.bench_sizes, *mechanism.gpu_bench_sizes)
    for name, value in sizes.items():
        known = {one[name] for one in own if name in one}
        words = sorted(word for word in known if isinstance(word, str))
        if words and value not in words:
            raise UserError(unknown_name(f"{name} of {mechanism.name}", str(value), words))
        if not words and not (isinstance(value, int) and value >= 1):
            raise UserError(f"size {name} of {mechanism.name} is a whole number from 1 on, not {value!r}")


def measured(
    mechanism: Mechanism, cases: Sequence[Case], budget_s: float, keep: Callable[[Measurement], None]
) -> Iterator[Cell]:
    """A cell per case, as it is measured; what can't run or is wrong takes none of the time."""
    reasons = {case: registry.why_not(mechanism, case) for case in cases}
    left = sum(not reason for reason in reasons.values())
    end_s = time.monotonic() + budget_s
    captured = environment.capture() if left else None
    for case in cases:
        standard = standard_of(mechanism, case)
        if reasons[case]:
            yield Cell(case, standard, reason=reasons[case])
            continue
        share_s = max(_LEAST_S, (end_s - time.monotonic()) / left)
        left -= 1
        seed = int.from_bytes(hashlib.sha256(case.id.encode()).digest()[:8], "big")
        try:
            with limited_threads(1):
                _, measurement, logs = measure_pair(
                    mechanism, standard, case, share_s, np.random.default_rng(seed), environment=captured
                )
        except WrongResult as error:
            yield Cell(case, standard, reason=error.check.reason, wrong=True)
            continue
        keep(measurement)
        yield Cell(case, standard, measurement, ratio_interval(logs))


def tables(cells: Sequence[Cell], backends: Sequence[str], width: int) -> Iterator[tuple[str, Table]]:
    """(title, table) per size: a row per variant, a column per backend, or three where they fit in ``width``."""
    timed = {cell.case.backend for cell in cells if cell.measurement}
    needed = _VARIANT_WIDTH + sum(_TIMED_WIDTH if name in timed else _UNTIMED_WIDTH for name in backends)
    flat = needed <= width
    for size in dict.fromkeys(cell.case.sizes for cell in cells):
        here = {(c.case.variant, c.case.backend): c for c in cells if c.case.sizes == size}
        first = next(iter(here.values())).case
        table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
        table.add_column("variant", no_wrap=True)
        for name in backends:
            table.add_column(name, no_wrap=True)
            if flat and name in timed:
                table.add_column("to standard", no_wrap=True)
                table.add_column("error", no_wrap=True)
        for variant in dict.fromkeys(variant for variant, _ in here):
            row = [variant]
            for name in backends:
                cell = here.get((variant, name))
                texts = cell.texts() if cell else ("", "", "")
                if flat and name in timed:
                    row += [*texts[:2], texts[2].removeprefix("error ")]
                else:
                    row.append("\n".join(text for text in texts if text))
            table.add_row(*row)
        yield f"{first.mechanism} {first.dtype} {first.id.rpartition('/')[2]}", table


def notes(cells: Sequence[Cell]) -> Iterator[str]:
    """What the numbers are, and why some are missing."""
    timed = [cell for cell in cells if cell.measurement]
    if timed:
        clocks = {cell.case.backend: cell.measurement.timer for cell in timed if cell.measurement}
        told = ", ".join(f"{name} by {clock}" for name, clock in clocks.items())
        threads = (
            "as many threads as the size says" if "threads" in dict(timed[0].case.sizes) else "one thread"
        )
        yield f"times: median per call, {told}; caches warm, {threads} on the CPU."
        standards = {cell.case.backend: cell.standard.variant for cell in timed}
        told = ", ".join(f"{variant} on {name}" for name, variant in standards.items())
        yield (
            f"ratios: to {told}, paired, with the interval over the blocks of this one process; a verdict "
            "needs several. error: the largest, against float64."
        )
    for cell in timed:
        if cell.measurement and "tried_s" in cell.measurement.details:
            yield f"{cell.case.variant} on {cell.case.backend} {tuning(cell.measurement.details)}"
    reasons: dict[str, list[str]] = {}
    for cell in cells:
        if cell.reason:
            reasons.setdefault(f"{cell.case.backend}: {cell.reason}", []).append(cell.case.variant)
    for reason, variants in reasons.items():
        backend = reason.partition(":")[0]
        everything = {cell.case.variant for cell in cells if cell.case.backend == backend}
        named = dict.fromkeys(variants)
        yield reason if everything == set(named) else f"{reason} ({', '.join(named)})"


def tuning(details: Mapping[str, Any]) -> str:
    """What an autotuner took, and the losers by their time."""
    tried = sorted(details["tried_s"].items(), key=lambda pair: pair[1])
    losers = "; ".join(f"{name}: {seconds(time_s)}" for name, time_s in tried if name != details["autotuned"])
    return (
        f"took {details['autotuned']} ({seconds(details['tried_s'][details['autotuned']])}); lost: {losers}"
    )


def run(
    name: str,
    backends: str,
    *,
    dtype: str | None = None,
    size: str | None = None,
    budget_s: float = BUDGET_S,
    record: Path | None = None,
    console: Console | None = None,
) -> int:
    """Measure and print; what was measured before Ctrl-C or a failure is printed too, and is in ``record``.

    Raises UserError for names that don't exist, and where nothing could run. Returns EXIT_FAILED if a result was
    wrong.
    """
    mechanism = registry.mechanism(name)
    if not budget_s > 0:
        raise UserError(f"the budget must be a positive number of seconds, not {budget_s:g}")
    wanted = list(dict.fromkeys(part.strip() for part in backends.split(",") if part.strip()))
    if not wanted:
        raise UserError(f"--backend names backends, such as {BACKENDS}, not {backends!r}")
    cases = chosen_cases(mechanism, wanted, dtype, size)
    if not cases:
        raise UserError(f"{name} has no variant for {', '.join(wanted)}")
    console = console or console_for()
    cells: list[Cell] = []
    writer = RecordWriter(record) if record else None
    try:
        cells.extend(measured(mechanism, cases, budget_s, _keeper(writer)))
    finally:
        if writer:
            writer.close()
        for title, table in tables(cells, wanted, console.width):
            console.print(title, soft_wrap=True)
            console.print(table)
            console.print()
        for sentence in notes(cells):
            console.print(sentence)
    if not any(cell.measurement or cell.wrong for cell in cells):
        raise UserError(f"nothing of {name} can run here on {', '.join(wanted)}")
    return EXIT_FAILED if any(cell.wrong for cell in cells) else EXIT_OK


def _keeper(writer: RecordWriter | None) -> Callable[[Measurement], None]:
    def keep(measurement: Measurement) -> None:
        if writer:
            writer.write("measurement", measurement=measurement)

    return keep
