"""The KV cache saved every few steps, waited for or written by a thread: the switch ``checkpoint``.

The file is replaced atomically, so that a reader finds the last whole state. It is not forced to the disk:
rapid recovery of a process, not of a machine. ``restore`` brings a state back; decoding then goes on with the
same numbers.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from flashperf.errors import UserError

State = dict[str, np.ndarray]


def checkpoint_key(level: str, caches: int, shape: Sequence[int]) -> str:
    """Names what a step waits for, with its sizes: the whole of it, or the copy."""
    what = {"every_n_sync": "host_checkpoint", "every_n_async": "host_checkpoint_copy"}[level]
    return f"{what}({caches}x{'x'.join(map(str, shape))})"


class Checkpoint:
    """``every_n_sync``: after every n-th step the caches are copied, serialised and written, and that is waited for.

    caches: arrays [slots, heads, positions, width]; read: what copies a part of one to the host
    ``wait_s`` adds up what the steps of a run waited for.
    """

    level = "every_n_sync"

    def __init__(
        self,
        caches: Sequence[Any],
        every_n: int,
        folder: Path | None = None,
        read: Callable[[Any], np.ndarray] = np.array,
    ) -> None:
        self.caches, self.every_n, self._read = tuple(caches), every_n, read
        self.saves = 0
        self.wait_s = 0.0
        self._parent = folder
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    @property
    def key(self) -> str:
        """Names what ``alone`` does, with its sizes."""
        return checkpoint_key(self.level, len(self.caches), self.caches[0].shape)

    @property
    def path(self) -> Path:
        """The state file; its folder is made on first use."""
        if self._folder is None:
            with _explained(self._parent or Path(tempfile.gettempdir())):
                self._folder = tempfile.TemporaryDirectory(prefix="flashperf-state-", dir=self._parent)
        assert self._folder is not None
        return Path(self._folder.name) / "state.npz"

    def begin(self) -> None:
        """A run begins."""
        self.wait_s = 0.0

    def after_step(self, steps_done: int, position: np.ndarray) -> None:
        """Save if ``steps_done`` is a multiple of n; positions [rows] go with the state.

        Raises UserError where the file can't be written: no room, no permission.
        """
        if steps_done % self.every_n == 0:
            begin = time.perf_counter()
            self._save(position)
            self.wait_s += time.perf_counter() - begin
            self.saves += 1

    def finish(self) -> None:
        """A run ends: every state is written."""

    def alone(self, position: np.ndarray) -> None:
        """What a step waits for, by itself."""
        self._save(position)

    def _save(self, position: np.ndarray) -> None:
        self._write(self._copy(position))

    def _copy(self, position: np.ndarray) -> State:
        used = int(position.max()) + 1
        state = {f"cache{i}": self._read(cache[:, :, :used]) for i, cache in enumerate(self.caches)}
        return {"position": position.copy(), **state}

    def _write(self, state: State) -> None:
        path = self.path
        partial = path.with_suffix(".part")
        try:
            with _explained(path.parent):
                with open(partial, "wb") as file:
                    np.savez(file, **state)  # type: ignore[arg-type]
                os.replace(partial, path)
        except UserError:
            partial.unlink(missing_ok=True)
            raise

    def close(self) -> None:
        """Remove the state file and its folder."""
        with suppress(UserError):
            self.finish()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


class AsyncCheckpoint(Checkpoint):
    """``every_n_async``: only the copy is waited for; a thread serialises and writes while decoding goes on.

    A save that finds the one before unfinished waits for it, and so does the end of a run.
    """

    level = "every_n_async"

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._writer = ThreadPoolExecutor(1, "flashperf-checkpoint")
        self._pending: Future[None] | None = None

    def _save(self, position: np.ndarray) -> None:
        self._drain()
        self._pending = self._writer.submit(self._write, self._copy(position))

    def alone(self, position: np.ndarray) -> None:
        """The copy; the writing is meant to cost the steps nothing."""
        self._copy(position)

    def finish(self) -> None:
        """Wait for the last write; raises what went wrong in it."""
        begin = time.perf_counter()
        self._drain()
        self.wait_s += time.perf_counter() - begin

    def _drain(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def close(self) -> None:
        """Remove the state file and its folder, and end the thread."""
        super().close()
        self._writer.shutdown()


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


def restore(path: Path, caches: Sequence[Any]) -> np.ndarray:
    """Read a state file back into the caches; returns the positions [rows] at which it was saved.

    Raises UserError for a file that is not a whole state of such caches.
    """
    try:
        with np.load(path) as state:
            position = state["position"]
            for number, cache in enumerate(caches):
                saved = state[f"cache{number}"]
                cache[:, :, : saved.shape[2]] = saved
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{path} is no state that these caches can be restored from: {error}") from error
    return position
