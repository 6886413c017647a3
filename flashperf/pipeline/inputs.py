"""What a step is made for, and the small arrays that change from step to step."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from flashperf.pipeline.batching import Decode, Prefill, Schedule
from flashperf.pipeline.engine import Engine
from flashperf.pipeline.scenario import Scenario


@dataclass(frozen=True)
class StepShape:
    """What a step's program is made for.

    rows:      tokens of the step; segments: row ranges of whole sequences (one per slot in a prefill), or one
               range of all rows when every row has a slot of its own
    outputs:   rows whose logits are wanted
    capacity:  positions per slot; slots: sequences
    window:    positions that a window spans
    """

    rows: int
    segments: tuple[tuple[int, int], ...]
    outputs: int
    slots: int
    capacity: int
    window: int


class StepInputs:
    """The small arrays that a step's calls point at: written before the step, never rebound.

    They are parts of one block of memory, so that a device gets them all in one copy.
    """

    def __init__(self, engine: Engine, shape: StepShape) -> None:
        self._engine = engine
        self._block = engine.empty((3 * shape.rows + shape.outputs + 1,), "i32")
        self._host_block = host = engine.host(self._block)
        ends = [0, shape.rows, 2 * shape.rows, 3 * shape.rows, 3 * shape.rows + shape.outputs, None]
        parts = [slice(*pair) for pair in itertools.pairwise(ends)]
        self.tokens, self.slot, self.position, self.last, self.extent = (self._block[part] for part in parts)
        self._host = [host[part] for part in parts]

    @property
    def host_position(self) -> np.ndarray:
        """The positions [rows] as the host has them."""
        return self._host[2]

    @property
    def width(self) -> int:
        """Positions that are in use: one more than the largest."""
        return int(self._host[4][0])

    def set(self, block: np.ndarray) -> None:
        """Bring in the inputs of a step, as ``pack_inputs`` made them."""
        self._host_block[...] = block
        self._engine.upload(self._block)

    def fill(self, tokens: np.ndarray, slot: np.ndarray, position: np.ndarray, last: np.ndarray) -> None:
        """``pack_inputs`` and ``set``."""
        self.set(pack_inputs(tokens, slot, position, last))


def pack_inputs(tokens: np.ndarray, slot: np.ndarray, position: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Tokens, slots, positions [rows], the rows whose logits are wanted and the extent, as one block of i32."""
    return np.concatenate([tokens, slot, position, last, [np.max(position) + 1]]).astype(np.int32)


@dataclass(frozen=True, eq=False)
class StepUse:
    """One use of a program: its shape and inputs, and (task, step) of each row of its logits that counts."""

    shape: StepShape
    block: np.ndarray
    logits: tuple[tuple[int, int], ...]


Turn = tuple[int, list[StepUse], StepUse]  # time of the scheduler's clock, prompts, decoding


def step_uses(scenario: Scenario, schedule: Schedule) -> list[Turn]:
    """The schedule as uses of programs."""
    return [
        (
            turn.clock,
            [_prefill_use(scenario, schedule.slots, group) for group in turn.prefills],
            _decode_use(scenario, schedule.slots, turn.decode),
        )
        for turn in schedule.iterations
    ]


def _shape(scenario: Scenario, slots: int, segments: tuple[tuple[int, int], ...], outputs: int) -> StepShape:
    return StepShape(segments[-1][1], segments, outputs, slots, scenario.capacity, scenario.window)


def _prefill_use(scenario: Scenario, slots: int, group: Prefill) -> StepUse:
    """Rows beyond a prompt hold token 0: they write to cache positions that decoding overwrites first."""
    prompts = [scenario.prompts[task] for task in group.tasks]
    sizes = [group.width or len(prompt) for prompt in prompts]
    ends = np.cumsum(sizes)
    begins = ends - sizes
    tokens = np.zeros(ends[-1], np.int32)
    for begin, prompt in zip(begins, prompts, strict=True):
        tokens[begin : begin + len(prompt)] = prompt
    last = begins + [len(prompt) - 1 for prompt in prompts]
    position = np.concatenate([np.arange(size) for size in sizes])
    block = pack_inputs(tokens, np.repeat(group.slots, sizes), position, last)
    segments = tuple(zip(begins.tolist(), ends.tolist(), strict=True))
    where = tuple((task, 0) for task in group.tasks)
    return StepUse(_shape(scenario, slots, segments, len(group.tasks)), block, where)


def _decode_use(scenario: Scenario, slots: int, decode: Decode) -> StepUse:
    """Rows beyond the active tasks have no slot, so they write nothing."""
    rows, active = decode.rows, len(decode.tasks)
    tokens, position = np.zeros((2, rows), np.int32)
    slot = np.full(rows, -1)
    slot[:active] = decode.slots
    tokens[:active] = scenario.continuation[list(decode.tasks), list(decode.steps)]
    position[:active] = scenario.lengths[list(decode.tasks)] + decode.steps
    block = pack_inputs(tokens, slot, position, np.arange(rows))
    where = tuple((task, step + 1) for task, step in zip(decode.tasks, decode.steps, strict=True))
    return StepUse(_shape(scenario, slots, ((0, rows),), rows), block, where)
