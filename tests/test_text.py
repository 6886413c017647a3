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


def normalised(part: bytes) -> str:
    return " ".join(part.decode().split())


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


needs_text_python = pytest.mark.skipif(
    not IS_TEXT_PYTHON, reason=f"the training text is that of Python {text.TEXT_PYTHON}"
)


@needs_text_python
def test_committed_heldout_is_what_the_split_gives():
    from pydoc_data.topics import topics

    assert text.select_heldout(topics) == text.heldout_bytes()


@needs_text_python
def test_training_text_shares_next_to_nothing_with_heldout():
    run = 48
    training, heldout = (normalised(part) for part in (text.training_bytes(), text.heldout_bytes()))
    starts = range(len(heldout) - run)
    runs = {heldout[start : start + run] for start in starts}
    shared = runs.intersection(training[start : start + run] for start in range(len(training) - run))
    assert sum(heldout[start : start + run] in shared for start in starts) / len(starts) < 0.01


def test_training_drops_heldout_topics_and_repeats():
    own = "A paragraph that only one topic has, long enough."
    shared = "This paragraph stands in three of the topics, however it is indented."
    topics = {
        "power": shared,
        "a": f"{own}\n\n   {shared}",
        "b": f"Note:\n\n{own}\n \nb ends.\n\nNote:",
    }
    docstring = "Only the docstring says this, but not the next:"
    training = text.select_training(topics, [f"{docstring}\n\n{shared}", docstring])
    assert training.topics.decode() == f"{own}\n\nNote:\n\nb ends.\n\nNote:"
    assert training.docstrings.decode() == docstring
    assert training.whole == training.topics + b"\n\n" + training.docstrings
    assert text.select_heldout(topics).decode() == shared


def test_docstrings_are_found_by_path_and_outermost_first(tmp_path: Path):
    sources = {
        "b.py": '"module b"\ndef f():\n    "b.f"\n    class G:\n        "b.f.G"\nasync def h():\n    "b.h"\n',
        "a/x.py": 'class C:\n    """\n    a.x.C\n    """\nNO = "docstring"\n',
        "test/t.py": '"""left out"""',
        "a/tests/t.py": '"""left out"""',
        "_sysconfigdata_linux.py": '"""generated"""',
        "config-3.11/x.py": '"""generated"""',
    }
    for name, source in sources.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(source, encoding="utf-8")
    found = [docstring for docstring in text.library_docstrings(tmp_path) if docstring]
    assert found == ["a.x.C", "module b", "b.f", "b.h", "b.f.G"]


def test_another_pythons_text_names_the_python_it_must_be(monkeypatch: pytest.MonkeyPatch):
    from pydoc_data import topics

    monkeypatch.setattr(text, "library_docstrings", lambda library: iter(()))
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
