"""The English text that the small model learns and is judged on: Python's own documentation.

Every CPython carries `pydoc_data.topics`, the text behind ``help("with")``, and the docstrings of its
standard library. Both differ between Python versions, so the text is kept in two ways:

* The training text, topics and docstrings, is taken from the running Python and pinned by hash. Only
  retraining needs it.
* The held-out text, other topics, and the prompts are committed beside this file, so that every Python sees
  the same.

The split is clean. Topics overlap (``with`` is a section of ``compound``), so a held-out topic must be one
that shares next to nothing with any other: fewer than 10 % of its 48-byte runs occur elsewhere. There are 47
such topics; every third by name, from the first, is held out. From the training text, each paragraph that was
already seen, in the held-out text or earlier, is dropped.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

TEXT_PYTHON = "3.11.7"
TRAINING_SHA256 = "6f1d3db7035043c9dabe41ea0a662e90583df2394f7a929621d6a9bd5bb36fd7"
HELDOUT_SHA256 = "d3b0ad5cfe5f78f9ddf2faed66cef841809029af52efe0ea913bdf4d1a0feb00"

HELDOUT_TOPICS = (
    "assert",
    "attribute-references",
    "bitwise",
    "bltin-null-object",
    "calls",
    "del",
    "floating",
    "imaginary",
    "lambda",
    "numbers",
    "power",
    "shifting",
    "string-methods",
    "truth",
    "typesmapping",
    "unary",
)

_DATA = resources.files("flashperf.pipeline") / "data"
_SHORTEST_REPEAT = 30  # characters; shorter paragraphs ("Note:") repeat by nature and are kept

# Not documentation, or parts that Linux distributions package apart from Python.
_LEFT_OUT = {"site-packages", "test", "tests", "idlelib", "lib2to3", "pydoc_data", "turtledemo"}
_LEFT_OUT |= {"distutils", "ensurepip", "tkinter"}
_GENERATED = ("_sysconfigdata", "config-")  # files and folders that differ between machines


class TextMismatchError(RuntimeError):
    """The text found isn't the text that the model and its figures belong to."""


@dataclass(frozen=True)
class Prompt:
    """A stretch of held-out text: what a request sends, and the bytes that really follow it.

    `text` is what is prefilled; `continuation` is what is then fed byte by byte (teacher forcing), so that
    every variant decodes the same bytes whatever it predicts. `offset` counts bytes into the held-out text.
    """

    name: str
    scenario: str  # "single" or "batch"
    topic: str
    offset: int
    text: str
    continuation: str


@dataclass(frozen=True)
class TrainingText:
    """The two parts of the training text, UTF-8: prose like the held-out text's, and more of a kind."""

    topics: bytes
    docstrings: bytes

    @property
    def whole(self) -> bytes:
        """Both parts; what the hash is of."""
        return self.topics + b"\n\n" + self.docstrings


def training_bytes() -> bytes:
    """The whole training text, UTF-8. Raises as `training_text` does."""
    return training_text().whole


def training_text() -> TrainingText:
    """The training text from the running Python's help topics and standard library.

    Raises TextMismatchError if this Python has no help topics or its text isn't that of `TEXT_PYTHON`.
    """
    source = f"that of the help topics and the standard library of Python {TEXT_PYTHON}"
    try:
        from pydoc_data.topics import topics
    except ImportError as error:
        raise TextMismatchError(
            f"this Python has no pydoc_data.topics; the training text must be {source}"
        ) from error
    text = select_training(topics, library_docstrings(Path(sysconfig.get_path("stdlib"))))
    check_sha256(text.whole, TRAINING_SHA256, "training text", source)
    return text


def heldout_bytes() -> bytes:
    """The committed held-out text, UTF-8, about 54 kB. Raises TextMismatchError if the file was altered."""
    text = (_DATA / "heldout.txt").read_bytes()
    check_sha256(text, HELDOUT_SHA256, "held-out text", "the committed flashperf/pipeline/data/heldout.txt")
    return text


def prompts(scenario: str | None = None) -> tuple[Prompt, ...]:
    """The committed prompts, in file order; with `scenario`, only those of "single" or "batch"."""
    records = json.loads((_DATA / "prompts.json").read_text(encoding="utf-8"))
    found = tuple(Prompt(**record) for record in records)
    names = sorted({prompt.scenario for prompt in found})
    if scenario is not None and scenario not in names:
        raise ValueError(f"no prompts for scenario {scenario!r}; there are {', '.join(names)}")
    return tuple(prompt for prompt in found if scenario in (None, prompt.scenario))


def check_sha256(text: bytes, expected: str, what: str, source: str) -> None:
    """Raises TextMismatchError, naming the expected `source`, unless `text` has the SHA-256 `expected`."""
    found = hashlib.sha256(text).hexdigest()
    if found != expected:
        raise TextMismatchError(
            f"the {what} has SHA-256 {found[:16]}..., expected {expected[:16]}...: it must be {source}"
        )


def select_heldout(topics: Mapping[str, str]) -> bytes:
    """The held-out topics of `topics` (name -> text), joined, UTF-8. This is how heldout.txt was made."""
    return "\n".join(topics[name] for name in HELDOUT_TOPICS if name in topics).encode()


def select_training(topics: Mapping[str, str], docstrings: Iterable[str]) -> TrainingText:
    """The topics that aren't held out, by name, and `docstrings`, each paragraph once."""
    heldout = [text for name, text in sorted(topics.items()) if name in HELDOUT_TOPICS]
    seen = {_key(paragraph) for text in heldout for paragraph in _paragraphs(text)}
    others = [topics[name] for name in sorted(set(topics) - set(HELDOUT_TOPICS))]
    kept_topics = [paragraph for text in others for paragraph in _unseen(_paragraphs(text), seen)]
    kept_docstrings = [paragraph for text in docstrings for paragraph in _unseen(_paragraphs(text), seen)]
    return TrainingText("\n\n".join(kept_topics).encode(), "\n\n".join(kept_docstrings).encode())


def library_docstrings(library: Path) -> Iterator[str]:
    """The docstrings in the Python sources under `library`, by path and, inside a file, outermost first."""
    for path in sorted(library.rglob("*.py"), key=lambda path: path.relative_to(library).as_posix()):
        parts = path.relative_to(library).parts
        if not _LEFT_OUT.isdisjoint(parts) or any(part.startswith(_GENERATED) for part in parts):
            continue
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield ast.get_docstring(node) or ""


def _unseen(paragraphs: Iterable[str], seen: set[str]) -> list[str]:
    """The paragraphs that aren't in `seen`, which grows by them."""
    fresh = []
    for paragraph in paragraphs:
        key = _key(paragraph)
        if len(key) >= _SHORTEST_REPEAT:
            if key in seen:
                continue
            seen.add(key)
        fresh.append(paragraph)
    return fresh


def _paragraphs(text: str) -> list[str]:
    return [paragraph for paragraph in re.split(r"\n[ \t]*\n", text) if paragraph.strip()]


def _key(paragraph: str) -> str:
    """The paragraph without its indentation and line breaks: sections are re-indented where they recur."""
    return " ".join(paragraph.split())
