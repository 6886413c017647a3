"""What is run: tasks of a prompt and a fixed continuation, so that every mixture does the same work.

Decoding freely would let mixtures diverge (precision and INT8 change the argmax); timing and checks are
teacher-forced: the continuation's bytes are fed whatever the logits say.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flashperf.errors import UserError
from flashperf.pipeline.text import prompts
from flashperf.suggest import unknown_name

#: name -> (prompt bytes of each task, decoded bytes per task, state saved every n decoded bytes)
_SHAPES: dict[str, tuple[tuple[int, ...], int, int]] = {
    "single": ((128,), 32, 16),
    "batch": ((16, 24, 40, 64, 96, 160, 32, 48), 16, 8),
}
SCENARIOS: tuple[str, ...] = tuple(_SHAPES)


@dataclass(frozen=True)
class Scenario:
    """Tasks to run together.

    prompts:          token ids i32 of each task, of any lengths
    continuation:     token ids i32 [tasks, steps] that are fed one column a step
    checkpoint_every: decoded tokens between two saved states
    window:           positions of a sliding window, where the span switch asks for one
    """

    name: str
    prompts: tuple[np.ndarray, ...]
    continuation: np.ndarray
    checkpoint_every: int
    window: int = 64

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


def scenario(name: str) -> Scenario:
    """A scenario by name, its text from the committed prompts. Raises UserError with the nearest names."""
    if name not in _SHAPES:
        raise UserError(unknown_name("scenario", name, SCENARIOS))
    lengths, steps, every = _SHAPES[name]
    text = np.frombuffer(b"".join(prompt.encode() for prompt in _texts()), np.uint8).astype(np.int32)
    starts = np.concatenate(([0], np.cumsum(np.array(lengths) + steps)))[:-1]
    if starts[-1] + lengths[-1] + steps > len(text):
        raise RuntimeError(f"scenario {name} needs more prompt text than is committed")
    return Scenario(
        name,
        tuple(text[start : start + length] for start, length in zip(starts, lengths, strict=True)),
        np.stack([text[s + n : s + n + steps] for s, n in zip(starts, lengths, strict=True)]),
        every,
    )


def custom_scenario(lengths: tuple[int, ...], steps: int, seed: int = 0, vocab: int = 256) -> Scenario:
    """Random tokens with the given prompt lengths; for tests and for shapes that have no text."""
    rng = np.random.default_rng(seed)
    texts = tuple(rng.integers(0, vocab, n).astype(np.int32) for n in lengths)
    return Scenario(
        "custom", texts, rng.integers(0, vocab, (len(lengths), steps)).astype(np.int32), 2, window=5
    )


def _texts() -> list[str]:
    return [prompt.text for prompt in prompts()]
