"""Which mixtures to run, in which order: cycles of quads and complement pairs, and confirmation blocks.

A mixture is a mask: bit i is set if switch i stands at its flash level. Bits count the active switches only,
in their order. A group of masks is run without interruption and only differences inside it (or between its
neighbours) are used, so that drift of the machine cancels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

QUAD, PAIR, CONFIRM = "quad", "pair", "confirm"


@dataclass(frozen=True)
class SwitchLevels:
    """A switch and its two levels. Inactive: it changes no planned call, so it is not measured."""

    name: str
    standard: str
    flash: str
    active: bool = True


@dataclass(frozen=True)
class Group:
    """Masks to run back to back, in run order.

    kind:    "quad" (none, i, all but i, all, or backwards), "pair" (S, all but S), "confirm" (a 2x2 block)
    switch:  the i of a quad; -1 otherwise
    weight:  weight of a pair in the least squares: kernel probability / sampling probability of its size
    """

    kind: str
    switch: int
    masks: tuple[int, ...]
    weight: float = 1.0


@dataclass(frozen=True)
class Observation:
    """One measured group: ``seconds[n]`` is the wall time of one call of mixture ``group.masks[n]``."""

    worker: int
    cycle: int
    group: Group
    seconds: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.seconds) != len(self.group.masks):
            raise ValueError(
                f"{len(self.group.masks)} mixtures were run but {len(self.seconds)} times are given"
            )
        if not all(0 < second < math.inf for second in self.seconds):
            raise ValueError(f"times must be positive and finite: {self.seconds}")


def active_switches(switches: Sequence[SwitchLevels]) -> tuple[SwitchLevels, ...]:
    """The switches that have a bit in a mask, in bit order."""
    return tuple(switch for switch in switches if switch.active)


def exact_pairs(k: int) -> float:
    """Complement pairs that a cycle of k quads needs for the sizes to follow the Shapley kernel.

    k (1 - q) / q, where q = (2 / (k - 1)) / sum over s of 1 / (s (k - s)) is the kernel's probability of the
    sizes 1 and k - 1, which the quads supply (kernel weights: Lundberg and Lee 2017; pairing: Covert and
    Lee 2021). Zero for k <= 3, where there is no other size.
    """
    if k <= 3:
        return 0.0
    q = 2 / (k - 1) / sum(1 / (s * (k - s)) for s in range(1, k))
    return k * (1 - q) / q


def pairs_per_cycle(k: int) -> int:
    """``exact_pairs`` as a whole number; what is lost in rounding is made up by the pairs' weight."""
    return round(exact_pairs(k))


def runs_per_cycle(k: int) -> int:
    """Calls of one cycle: 4 a quad and 2 a pair (52 at k = 8, 152 at k = 18)."""
    return 4 * k + 2 * pairs_per_cycle(k)


def cycle_groups(k: int, rng: np.random.Generator, pairs: int | None = None) -> list[Group]:
    """One cycle for k switches in random order: a quad for each, and ``pairs`` complement pairs.

    Sizes s in 2..k - 2 are drawn systematically, with probability proportional to 1 / (s (k - s)), the set
    uniformly, and either side of a pair comes first at random. Another number of pairs than the default is
    made up by their weight.
    Raises ValueError for k < 1, or for no pairs where some are needed.
    """
    if k < 1:
        raise ValueError("a design needs at least one active switch")
    count = pairs_per_cycle(k) if pairs is None else pairs
    if k <= 3:
        count = 0
    elif count < 1:
        raise ValueError(f"{k} switches need at least one complement pair a cycle")
    groups = [_quad(i, k, rng) for i in range(k)]
    if count:
        sizes = np.arange(2, k - 1)
        cumulative = np.cumsum(1 / (sizes * (k - sizes)))
        draws = (np.arange(count) + rng.random()) / count * cumulative[-1]
        for size in sizes[np.searchsorted(cumulative, draws)]:
            groups.append(_pair(int(size), k, exact_pairs(k) / count, rng))
    return [groups[n] for n in rng.permutation(len(groups))]


def _quad(switch: int, k: int, rng: np.random.Generator) -> Group:
    everything = (1 << k) - 1
    masks = (0, 1 << switch, everything ^ (1 << switch), everything)
    return Group(QUAD, switch, masks if rng.random() < 0.5 else masks[::-1])


def _pair(size: int, k: int, weight: float, rng: np.random.Generator) -> Group:
    mask = sum(1 << int(i) for i in rng.choice(k, size, replace=False))
    masks = (mask, ((1 << k) - 1) ^ mask)
    return Group(PAIR, -1, masks if rng.random() < 0.5 else masks[::-1], weight)


def confirmation_block(i: int, j: int, k: int, background: int, rng: np.random.Generator) -> Group:
    """{none, i, ij, j, j, ij, i, none} on a background mask of other switches; i and j swapped at random.

    Linear drift cancels in the contrast log T(ij) - log T(i) - log T(j) + log T(none).
    """
    pair = (1 << i) | (1 << j)
    if i == j or not 0 <= min(i, j) <= max(i, j) < k or background & pair or background >> k:
        raise ValueError(f"switches {i} and {j} of {k} on background {background:b} make no 2x2 block")
    first, second = (i, j) if rng.random() < 0.5 else (j, i)
    half = [background, background | 1 << first, background | pair, background | 1 << second]
    return Group(CONFIRM, -1, tuple(half + half[::-1]))


def confirmation_groups(
    pairs: Sequence[tuple[int, int]], k: int, worker: int, rng: np.random.Generator
) -> list[Group]:
    """The blocks of one worker: every pair in turn on none or on all others, then again on the other (k = 2: once).

    Even workers begin with none, odd ones with all others, so that a round cut short still has both.
    """
    everything = (1 << k) - 1
    groups: list[Group] = []
    for side in range(2 if k > 2 else 1):
        on_flash = (side + worker) % 2 == 1
        for i, j in pairs:
            others = everything ^ (1 << i) ^ (1 << j)
            groups.append(confirmation_block(i, j, k, others if on_flash else 0, rng))
    return groups


def block_pair(group: Group) -> tuple[int, int, int]:
    """(i, j, background) of a confirmation block, i < j."""
    background, both = group.masks[0], group.masks[2] ^ group.masks[0]
    j = both.bit_length() - 1
    return (both ^ (1 << j)).bit_length() - 1, j, background
