"""What is run: tasks of a prompt and a fixed continuation, so that every mixture does the same work.

Decoding freely would let mixtures diverge (precision and INT8 change the argmax); timing and checks are
teacher-forced: the continuation's bytes are fed whatever the logits say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from flashperf.errors import UserError
from flashperf.pipeline.text import prompts
from flashperf.suggest import unknown_name

_BATCH = (8, 16, 24, 40, 64, 96, 20, 32)
_SERVE_LENGTHS, _SERVE_REQUESTS, _SERVE_SLOTS, _SERVE_LOAD = (16, 24, 32, 48), 10, 4, 0.9
_RAGGED = tuple(int(n) for n in np.random.default_rng(0).permutation(np.geomspace(8, 2048, 64).round()))
#: name -> (prompt bytes of each task, decoded bytes per task, state saved every n decoded bytes)
_SHAPES: dict[str, tuple[tuple[int, ...], int, int]] = {
    "single": ((128,), 32, 16),
    "batch": (_BATCH, 8, 4),
    "serve": ((), 8, 8),
    "long": ((992,), 32, 16),
    "ragged": (_RAGGED, 8, 8),
}
SCENARIOS: tuple[str, ...] = tuple(_SHAPES)


@dataclass(frozen=True)
class Scenario:
    """Tasks to run together.

    prompts:          token ids i32 of each task, of any lengths
    continuation:     token ids i32 [tasks, steps] that are fed one column a step
    checkpoint_every: decoding steps between two saved states
    window:           positions of a sliding window, where the span switch asks for one
    arrivals:         when each task arrives, in iterations of the scheduler; all at once by default
    concurrency:      tasks that may be active at once; all by default
    """

    name: str
    prompts: tuple[np.ndarray, ...]
    continuation: np.ndarray
    checkpoint_every: int
    window: int = 64
    arrivals: tuple[int, ...] = ()
    concurrency: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "arrivals", self.arrivals or (0,) * len(self.prompts))
        object.__setattr__(self, "concurrency", self.concurrency or len(self.prompts))

    @property
    def serves(self) -> bool:
        """Whether tasks arrive over time, so that each has a latency of its own."""
        return any(self.arrivals)

    @property
    def steps(self) -> int:
        """Decoding steps."""
        return self.continuation.shape[1]

    @property
    def lengths(self) -> np.ndarray:
        """Prompt lengths [tasks]."""
        return np.array([len(prompt) for prompt in self.prompts])

    @property
    def capacity(self) -> int:
        """Positions that a cache slot must hold."""
        return int(self.lengths.max()) + self.steps

    @property
    def tokens(self) -> int:
        """Tokens that one run processes: prompts and continuations."""
        return int(self.lengths.sum()) + self.continuation.size

    def sequences(self) -> list[np.ndarray]:
        """Prompt and continuation of each task, joined; what a whole-sequence reference takes."""
        return [np.concatenate(pair) for pair in zip(self.prompts, self.continuation, strict=True)]


def scenario(name: str, seed: int = 0) -> Scenario:
    """A scenario by name, its text from the committed prompts: single, batch (or batch:N), serve, long, ragged.

    long has 1024 tokens; ragged has 64 prompts of 8 to 2048 bytes, beyond the positions that ``small`` was trained
    on: for times and memory, not for what it says. ``seed`` sets the arrivals of serve. Raises UserError with the
    nearest names.
    """
    base, colon, number = name.partition(":")
    if base not in _SHAPES or (colon and base != "batch"):
        raise UserError(unknown_name("scenario", name, (*SCENARIOS, "batch:N")))
    lengths, steps, every = _SHAPES[base]
    if colon:
        if not number.isdigit() or not 1 <= int(number) <= 1024:
            raise UserError(f"batch:N takes a number of tasks from 1 to 1024, not {number!r}")
        lengths = tuple(_BATCH[i % len(_BATCH)] for i in range(int(number)))
    if base == "serve":
        return _serve(steps, every, seed)
    return _cut(name, lengths, steps, every)


def _serve(steps: int, every: int, seed: int) -> Scenario:
    """One request of each length waits at first; others come at Poisson times, at _SERVE_LOAD of what is served."""
    rng = np.random.default_rng(seed)
    later = _SERVE_REQUESTS - len(_SERVE_LENGTHS)
    lengths = (*rng.permutation(_SERVE_LENGTHS), *rng.choice(_SERVE_LENGTHS, later))
    gaps = rng.exponential(steps / (_SERVE_SLOTS * _SERVE_LOAD), later)
    arrivals = (0,) * len(_SERVE_LENGTHS) + tuple(int(at) for at in np.cumsum(gaps))
    sizes = tuple(int(n) for n in lengths)
    return _cut("serve", sizes, steps, every, arrivals=arrivals, concurrency=_SERVE_SLOTS)


def _cut(name: str, lengths: tuple[int, ...], steps: int, every: int, **options: Any) -> Scenario:
    """Prompts and continuations cut from the committed text one after the other, from its beginning again."""
    text = np.frombuffer(b"".join(prompt.encode() for prompt in _texts()), np.uint8).astype(np.int32)
    sizes = np.array(lengths) + steps
    starts = np.concatenate(([0], np.cumsum(sizes)))[:-1]
    pieces = [text[(start + np.arange(size)) % len(text)] for start, size in zip(starts, sizes, strict=True)]
    prompts = tuple(piece[:length] for piece, length in zip(pieces, lengths, strict=True))
    continuation = np.stack([piece[length:] for piece, length in zip(pieces, lengths, strict=True)])
    return Scenario(name, prompts, continuation, every, **options)


def custom_scenario(
    lengths: tuple[int, ...], steps: int, seed: int = 0, vocab: int = 256, **options: Any
) -> Scenario:
    """Random tokens with the given prompt lengths; for tests and for shapes that have no text."""
    rng = np.random.default_rng(seed)
    texts = tuple(rng.integers(0, vocab, n).astype(np.int32) for n in lengths)
    continuation = rng.integers(0, vocab, (len(lengths), steps)).astype(np.int32)
    return Scenario("custom", texts, continuation, 2, **{"window": 5, **options})


def _texts() -> list[str]:
    return [prompt.text for prompt in prompts()]
