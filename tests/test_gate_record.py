"""The committed trials of the gate: what the documentation says of them is what they hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from flashperf.gate.rule import SLOWER
from flashperf.gate.trial_report import called, coverage, suites_of, trial_lines
from flashperf.gate.trials import read_trials

ROOT = Path(__file__).parent.parent
RECORDS = sorted((ROOT / "results").glob("*/gate-trials*.jsonl"))
DOCUMENT = ROOT / "docs" / "gate.md"


@pytest.mark.skipif(not RECORDS, reason="no committed records: an installation without its repository")
def test_the_document_shows_what_the_records_say() -> None:
    trials = [trial for path in RECORDS[::-1] for trial in read_trials(path)]
    text = DOCUMENT.read_text()
    for line in trial_lines(trials):
        if not line.startswith("measured"):
            assert line.rstrip() in text
    same = suites_of(trials, 0.0)
    assert len(same) >= 60
    for threshold in (0.02, 0.05):
        benches, suites = called(same, threshold, (SLOWER,))
        assert benches.rate <= 0.01
        assert suites.rate <= 0.05
    assert 0.93 <= coverage(same).rate <= 0.97
