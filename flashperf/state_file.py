"""The last whole state of a run in a temporary folder, as checkpoints keep it.

A state is written beside the last one, renamed when it is whole, and then the last one is removed. Renaming it over
the last one would also be atomic, but ext4 answers that by allocating and writing back its blocks at once
(``auto_da_alloc`` in ext4's documentation): the disk would be timed, not the page cache.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from flashperf.errors import UserError


class StateFile:
    """``path`` is the last whole state; its folder is made with the first, in ``parent`` or where temporary files go.

    Nothing is forced to the disk: a process can recover, a machine might not. What can't be written raises
    UserError: no room, no permission. The folder goes with ``close``, with this object or with the process.
    """

    def __init__(self, parent: Path | None = None, suffix: str = ".npz") -> None:
        self._parent, self._suffix, self._written = parent, suffix, 0
        self._remove: weakref.finalize[..., StateFile] | None = None
        self._folder = Path()

    @property
    def path(self) -> Path:
        """The last whole state; no file before the first is written."""
        return self._named(self._written)

    def _named(self, number: int) -> Path:
        return self._folder / f"state-{number}{self._suffix}"

    def write(self, save: Callable[[BinaryIO], None]) -> None:
        """Replace the state by what ``save`` writes; if that fails, the last one stays."""
        if self._remove is None:
            self._make_folder()
        partial = self.path.with_suffix(".part")
        try:
            with _explained(partial.parent):
                with open(partial, "wb") as file:
                    save(file)
                partial.rename(self._named(self._written + 1))
        except UserError:
            partial.unlink(missing_ok=True)
            raise
        last, self._written = self.path, self._written + 1
        last.unlink(missing_ok=True)

    def _make_folder(self) -> None:
        parent = self._parent or Path(tempfile.gettempdir())
        with _explained(parent):
            self._folder = Path(tempfile.mkdtemp(prefix="flashperf-state-", dir=parent))
        self._remove = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)

    def close(self) -> None:
        """Remove the state and its folder; another write begins anew."""
        if self._remove is not None:
            self._remove()
            self._remove = None


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    """Turns the system's refusal to write into one line that says what to do."""
    try:
        yield
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise UserError(
            f"checkpoint: the state can't be saved in {folder}: {why}; "
            "make room there, or point TMPDIR at another folder"
        ) from error
