"""The text: the split is the stated one, the committed files are those it gives, a mismatch is explained."""

from __future__ import annotations

import hashlib
import itertools
import platform
import sys
from pathlib import Path

import pytest

from flashperf.pipeline import text

DATA = Path(text.__file__).with_name("data")
IS_TEXT_PYTHON = platform.python_version() == text.TEXT_PYTHON


def test_heldout_is_committed_and_pinned():
    heldout = text.heldout_bytes()
    assert hashlib.sha256(heldout).hexdigest() == text.HELDOUT_SHA256
    assert 50_000 < len(heldout) < 56_000


def test_committed_text_stays_small():
    total = sum((DATA / name).stat().st_size for name in ("heldout.txt", "prompts.json"))
    assert total <= 64 * 1024


def test_notice_holds_copyright_and_licence():
    notice = " ".join((DATA / "NOTICE").read_text(encoding="utf-8").split())
    assert "2023 Python Software Foundation; All Rights Reserved" in notice
    assert "PYTHON SOFTWARE FOUNDATION LICENSE VERSION 2" in notice
    assert "will automatically terminate upon a material breach" in notice


@pytest.mark.skipif(not IS_TEXT_PYTHON, reason=f"the training text is that of Python {text.TEXT_PYTHON}")
def test_committed_heldout_is_what_the_split_gives():
    from pydoc_data.topics import topics

    assert text.select_heldout(topics) == text.heldout_bytes()


@pytest.mark.skipif(not IS_TEXT_PYTHON, reason=f"the training text is that of Python {text.TEXT_PYTHON}")
def test_training_text_shares_next_to_nothing_with_heldout():
    run = 48
    halves = text.training_bytes(), text.heldout_bytes()
    training, heldout = (" ".join(half.decode().split()) for half in halves)
    seen = {training[start : start + run] for start in range(len(training) - run)}
    starts = range(len(heldout) - run)
    assert sum(heldout[start : start + run] in seen for start in starts) / len(starts) < 0.01


def test_training_drops_heldout_topics_and_repeats():
    own = "A paragraph that only one topic has, long enough."
    shared = "This paragraph stands in three of the topics, however it is indented."
    topics = {"power": shared, "a": f"{own}\n\n   {shared}", "b": f"Note:\n\n{own}\n \nb ends.\n\nNote:"}
    assert text.select_training(topics).decode() == f"{own}\n\nNote:\n\nb ends.\n\nNote:"
    assert text.select_heldout(topics).decode() == shared


def test_another_pythons_text_names_the_python_it_must_be(monkeypatch: pytest.MonkeyPatch):
    from pydoc_data import topics

    monkeypatch.setattr(topics, "topics", {"with": "The with statement, as another version describes it."})
    with pytest.raises(
        text.TextMismatchError, match=rf"training text has SHA-256 .*Python {text.TEXT_PYTHON}"
    ):
        text.training_bytes()


def test_a_python_without_topics_is_told_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    with pytest.raises(text.TextMismatchError, match=rf"no pydoc_data.topics.*Python {text.TEXT_PYTHON}"):
        text.training_bytes()


def test_prompts_are_cut_from_the_heldout_text():
    heldout = text.heldout_bytes()
    ends = []
    for prompt in text.prompts():
        whole = (prompt.text + prompt.continuation).encode()
        assert heldout[prompt.offset : prompt.offset + len(whole)] == whole, prompt.name
        assert prompt.topic in text.HELDOUT_TOPICS
        ends.append((prompt.offset, prompt.offset + len(whole)))
    ends.sort()
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ends))


def test_prompt_lengths():
    single, batch = text.prompts("single"), text.prompts("batch")
    assert [len(prompt.text.encode()) for prompt in single] == [1100]
    lengths = [len(prompt.text.encode()) for prompt in batch]
    assert min(lengths) == 96
    assert max(lengths) <= 1100
    assert len(set(lengths)) == len(lengths) >= 7
    assert all(prompt.continuation for prompt in single + batch)


def test_unknown_scenario_lists_the_known_ones():
    with pytest.raises(ValueError, match="batch, single"):
        text.prompts("bulk")
