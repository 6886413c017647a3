"""What happens around a step on the host: masks rebuilt, state saved. Each is a switch's level.

A decorator is called before or after the step's program with the step's number; the order is fixed:
preprocessing, then the program, then checkpoint.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from flashperf.pipeline.engine import Engine
from flashperf.pipeline.program import Program


def rebuild_mask(engine: Engine, program: Program, window: int) -> Callable[[], None]:
    """The host work of ``preprocessing=rebuilt``: positions to an additive mask, written into the step's buffer.

    Boolean causal mask over the padded width, window, conversion to float, expansion and copy: the steps of
    transformers' ``_prepare_4d_causal_attention_mask`` and of its sliding-window twin, in NumPy.
    """
    mask, position = engine.host(program.mask), program.inputs.host_position

    def rebuild() -> None:
        width = program.inputs.width
        keys = np.arange(width)
        allowed = keys[None, :] <= position[:, None]
        if window:
            allowed &= keys[None, :] > position[:, None] - window
        inverted = 1.0 - allowed.astype(np.float32)
        additive = np.where(inverted.astype(bool), np.float32(-np.inf), inverted)
        mask[:, :width] = additive
        engine.upload(program.mask)

    return rebuild


class Checkpoint:
    """``checkpoint=every_n_sync``: after every n-th decoded token the KV cache is copied, serialised and written.

    The file is replaced atomically, so that a reader finds the last whole state. It is not forced to the disk:
    rapid recovery of a process, not of a machine.
    """

    def __init__(
        self,
        caches: Sequence[Any],
        every_n: int,
        folder: Path | None = None,
        read: Callable[[Any], np.ndarray] = np.array,
    ) -> None:
        self.caches, self.every_n, self._read = tuple(caches), every_n, read
        self.saves = 0
        self._parent = folder
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    @property
    def path(self) -> Path:
        """The state file; its folder is made on first use."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="flashperf-state-", dir=self._parent)
        return Path(self._folder.name) / "state.npz"

    def after_step(self, tokens_done: int, position: np.ndarray) -> None:
        """Save if ``tokens_done`` is a multiple of n; positions [rows] go with the state."""
        if tokens_done % self.every_n:
            return
        used = int(position.max()) + 1
        state: dict[str, Any] = {f"cache{i}": self._read(cache[:, :, :used]) for i, cache in enumerate(self.caches)}
        partial = self.path.with_suffix(".part")
        with open(partial, "wb") as file:
            np.savez(file, position=position, **state)
        os.replace(partial, self.path)
        self.saves += 1

    def close(self) -> None:
        """Remove the state file and its folder."""
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
