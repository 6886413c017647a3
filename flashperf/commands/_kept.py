"""What a command says when it is cut off, and its exit code: where the measurements are that were made by then."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flashperf.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, UserError

#: How a record says that its run ended as it should have.
_WHOLE = ("done", "budget")


@contextmanager
def kept(record: Path, kind: str, command: str) -> Iterator[None]:
    """Add ``; what was measured is kept: <command> --from RECORD`` to an error, if the record has such lines.

    ``kind`` is what a line with a measurement is called. An interruption becomes an error of its own.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise UserError(f"interrupted{_where(record, kind, command)}", EXIT_INTERRUPTED) from None
    except Exception as error:
        where = _where(record, kind, command)
        if not where:
            raise
        raise UserError(f"{error}{where}", getattr(error, "exit_code", EXIT_FAILED)) from error


def exit_code(stopped: str) -> int:
    """The exit code for a record that ended so: "done", "budget", "interrupted", "killed", a failure."""
    if stopped == "interrupted":
        return EXIT_INTERRUPTED
    return EXIT_OK if stopped in _WHOLE else EXIT_FAILED


def _where(record: Path, kind: str, command: str) -> str:
    try:
        measured = f'"kind": "{kind}"' in record.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return f"; what was measured is kept: {command} --from {record}" if measured else ""
