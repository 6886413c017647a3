"""Which requests run together: the switch ``batching``, as a schedule that a scenario and a level fix.

A scheduler admits requests that have arrived while slots are free, runs their prompts, then decodes one token
of every request that is active, and so on. Its clock counts such iterations, and requests arrive at given
ones: the schedule, and with it the work, is the same in every run and under every other switch. (With arrivals
in seconds, a slower mixture would find other requests waiting, and mixtures could not be compared call by
call.) What the clock can't show is that a slower server is also asked more in the time that it takes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flashperf.pipeline.scenario import Scenario

MAX_PREFILL_ROWS = 8192  # rows of one prefill; longer batches are cut, as serving systems do


@dataclass(frozen=True)
class Prefill:
    """Prompts that run as one program: end to end (``width`` 0), or each padded to ``width`` rows."""

    tasks: tuple[int, ...]
    slots: tuple[int, ...]
    width: int = 0


@dataclass(frozen=True)
class Decode:
    """One token of each of ``tasks``, the ``steps[i]``-th of ``tasks[i]``, padded to ``rows`` rows."""

    tasks: tuple[int, ...]
    slots: tuple[int, ...]
    steps: tuple[int, ...]
    rows: int


@dataclass(frozen=True)
class Iteration:
    """One turn of the scheduler at a time of its clock."""

    clock: int
    prefills: tuple[Prefill, ...]
    decode: Decode


@dataclass(frozen=True)
class Schedule:
    """All iterations of a run. ``slots``: sequences that the KV cache holds."""

    iterations: tuple[Iteration, ...]
    slots: int

    def rows(self, lengths: np.ndarray) -> tuple[int, int]:
        """(rows that carry a token of a request, rows that are computed), prompts and decoding."""
        real = computed = 0
        for turn in self.iterations:
            for group in turn.prefills:
                tokens = int(sum(lengths[task] for task in group.tasks))
                real += tokens
                computed += group.width * len(group.tasks) or tokens
            real += len(turn.decode.tasks)
            computed += turn.decode.rows
        return real, computed


def schedule(scenario: Scenario, level: str) -> Schedule:
    """The schedule of a scenario under a level of ``batching``."""
    slots = 1 if level == "single" else scenario.concurrency
    waiting = sorted(range(len(scenario.prompts)), key=lambda task: (scenario.arrivals[task], task))
    free = list(range(slots))
    active: dict[int, list[int]] = {}  # task -> [slot, next step], in the order of admission
    clock, turns = 0, []
    while waiting or active:
        if not active:
            clock = max(clock, int(scenario.arrivals[waiting[0]]))
        admitted = []
        while waiting and free and scenario.arrivals[waiting[0]] <= clock:
            task = waiting.pop(0)
            active[task] = [free.pop(0), 0]
            admitted.append(task)
        lengths = [len(scenario.prompts[task]) for task in admitted]
        groups = [[admitted[i] for i in group] for group in grouped(lengths, level)]
        prefills = tuple(_prefill(scenario, group, active, level) for group in groups)
        state = list(active.items())
        rows = min(slots, 1 << (len(state) - 1).bit_length())
        places, steps = (tuple(found[i] for _, found in state) for i in (0, 1))
        turns.append(Iteration(clock, prefills, Decode(tuple(t for t, _ in state), places, steps, rows)))
        for task, found in state:
            found[1] += 1
            if found[1] == scenario.steps:
                free.append(active.pop(task)[0])
        free.sort()
        clock += 1
    return Schedule(tuple(turns), slots)


def grouped(lengths: Sequence[int], level: str) -> list[list[int]]:
    """Indices of the prompts that run as one program, by a level of ``batching``.

    Buckets are powers of two. Groups are cut where they would have more than MAX_PREFILL_ROWS rows.
    """
    if level == "single":
        return [[index] for index in range(len(lengths))]
    buckets: dict[int, list[int]] = {}
    for index, length in enumerate(lengths):
        buckets.setdefault(math.ceil(math.log2(length)) if level == "bucketed" else 0, []).append(index)
    found = []
    for _, members in sorted(buckets.items()):
        widest = max(lengths[index] for index in members)
        rows, group = 0, list[int]()
        for index in members:
            added = lengths[index] if level == "packed" else widest
            if group and rows + added > MAX_PREFILL_ROWS:
                found.append(group)
                rows, group = 0, []
            rows += added
            group.append(index)
        found.append(group)
    return found


def _prefill(scenario: Scenario, group: list[int], active: dict[int, list[int]], level: str) -> Prefill:
    """One group as a program; prompts of one length need no padding."""
    lengths = {len(scenario.prompts[task]) for task in group}
    width = 0 if level == "packed" or len(lengths) == 1 else max(lengths)
    return Prefill(tuple(group), tuple(active[task][0] for task in group), width)
