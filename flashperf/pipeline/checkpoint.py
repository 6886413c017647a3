"""The KV cache saved every few steps, waited for or written by a thread: the switch ``checkpoint``.

A reader finds the last whole state (``StateFile``): rapid recovery of a process, not of a machine. ``restore``
brings a state back; decoding then goes on with the same numbers.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from flashperf.errors import UserError
from flashperf.state_file import StateFile

State = dict[str, np.ndarray]


@functools.cache
def own_state_file() -> StateFile:
    """The file of this process: every mixture saves to it, as one job would.

    With a file of its own each, a mixture's first saves would wait for the system to find memory for its pages.
    """
    return StateFile()


def checkpoint_key(level: str, caches: int, shape: Sequence[int]) -> str:
    """Names what a step waits for, with its sizes: the whole of it, or the copy."""
    what = {"every_n_sync": "host_checkpoint", "every_n_async": "host_checkpoint_copy"}[level]
    return f"{what}({caches}x{'x'.join(map(str, shape))})"


class Checkpoint:
    """``every_n_sync``: after every n-th step the caches are copied, serialised and written, and that is waited for.

    caches: arrays [slots, heads, positions, width]; read: what copies a part of one to the host; file: the process's
    own unless another is given
    ``wait_s`` adds up what the steps of a run waited for.
    """

    level = "every_n_sync"

    def __init__(
        self,
        caches: Sequence[Any],
        every_n: int,
        file: StateFile | None = None,
        read: Callable[[Any], np.ndarray] = np.array,
    ) -> None:
        self.caches, self.every_n, self._read = tuple(caches), every_n, read
        self.saves = 0
        self.wait_s = 0.0
        self.file = file or own_state_file()

    @property
    def key(self) -> str:
        """Names what ``alone`` does, with its sizes."""
        return checkpoint_key(self.level, len(self.caches), self.caches[0].shape)

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
        def save(file: BinaryIO) -> None:
            np.savez(file, **state)  # type: ignore[arg-type]

        self.file.write(save)

    def close(self) -> None:
        """Wait for what is being written."""
        with suppress(UserError):
            self.finish()


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
        """Wait for what is being written, and end the thread."""
        super().close()
        self._writer.shutdown()


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
