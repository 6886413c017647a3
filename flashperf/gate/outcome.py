"""What a gate run ends with: a line per bench, one for the suite, and the exit code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from flashperf.errors import EXIT_OK, UserError
from flashperf.gate.rule import CANT_TELL, SLOWER, Verdict
from flashperf.suggest import unknown_name

MISSING, NEW, FAILED, NOT_COMPARABLE = "missing", "new", "failed", "not comparable"
DEFAULT_THRESHOLD = 0.05
#: Of all outcomes that fail a run, the first in this list gives the exit code.
EXIT_CODES = {FAILED: 14, SLOWER: 10, MISSING: 12, NEW: 15, NOT_COMPARABLE: 13, CANT_TELL: 11}
#: What the command line calls them.
FAIL_ON = {
    "failed": FAILED,
    "slower": SLOWER,
    "missing": MISSING,
    "new": NEW,
    "not-comparable": NOT_COMPARABLE,
    "cant-tell": CANT_TELL,
}
DEFAULT_FAIL_ON = "slower,missing,failed,not-comparable"


@dataclass(frozen=True)
class Outcome:
    """One bench of a gate run. ``verdict`` is None where it stands outside: missing, new, failed, not comparable.

    detail: why, or what the comparison rests on (canary, drift); one line. times_s: median seconds before and
    now, where known.
    """

    name: str
    word: str
    verdict: Verdict | None = None
    detail: str = ""
    times_s: tuple[float, float] | None = None


@dataclass(frozen=True)
class GateReport:
    """All outcomes of one comparison. before, now: what was compared, for people; notes: lines for all."""

    before: str
    now: str
    outcomes: tuple[Outcome, ...]
    notes: tuple[str, ...] = ()
    alpha: float = field(default=0.05)

    def of(self, word: str) -> list[Outcome]:
        """The outcomes with this word."""
        return [outcome for outcome in self.outcomes if outcome.word == word]

    @property
    def passed(self) -> bool:
        """Every bench was judged and is no slower than its D: what "the suite is no slower" claims."""
        return bool(self.outcomes) and all(o.verdict is not None and o.verdict.passed for o in self.outcomes)

    def exit_code(self, fail_on: Iterable[str]) -> int:
        """0, or the code of the first of EXIT_CODES that is among ``fail_on`` (words) and occurred."""
        wanted = set(fail_on)
        codes = (code for word, code in EXIT_CODES.items() if word in wanted and self.of(word))
        return next(codes, EXIT_OK)


def parse_fail_on(text: str) -> tuple[str, ...]:
    """``slower,missing`` as outcome words; ``none`` is empty. Raises UserError for an unknown name."""
    words = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        if part == "none":
            continue
        if part not in FAIL_ON:
            raise UserError(unknown_name("outcome to fail on", part, [*FAIL_ON, "none"]))
        words.append(FAIL_ON[part])
    return tuple(words)


def parse_percent(text: str | float, what: str = "threshold") -> float:
    """``"2%"``, ``"0.5 %"`` or ``"2"`` (percent) as a fraction. Raises UserError unless 0 < percent < 1000."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*%?\s*", str(text))
    value = float(match.group(1)) if match else 0.0
    if not 0 < value < 1000:
        raise UserError(f"a {what} is a percentage above 0, such as 2% or 0.5%, not {str(text)!r}")
    return value / 100


def suite_line(report: GateReport, thresholds: Sequence[float]) -> str:
    """The sentence on the suite."""
    counts = [
        f"{len(report.of(word))} {word}"
        for word in (SLOWER, CANT_TELL, MISSING, NEW, FAILED, NOT_COMPARABLE)
        if report.of(word)
    ]
    total = len(report.outcomes)
    if report.passed:
        largest = max(thresholds)
        kind = f"{largest:.3g}" if largest == min(thresholds) else "its own D"
        limit = f"{100 * largest:.3g} %" if largest == min(thresholds) else kind
        return f"the suite is no slower than {limit}: all {total} benches are shown to be"
    judged_fine = sum(1 for o in report.outcomes if o.verdict is not None and o.verdict.passed)
    return f"of {total} benches {judged_fine} are no slower; {', '.join(counts) or 'none was judged'}"
