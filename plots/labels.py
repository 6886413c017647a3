"""Places small labels beside points so that they cover neither each other nor a point. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Pair = tuple[float, float]
#: Tried in this order; then the same further away.
_ANGLES = (45, 135, 315, 225, 90, 0, 270, 180)
_DISTANCES = (1.0, 1.6, 2.4, 3.4)


@dataclass(frozen=True)
class Box:
    """A rectangle in pixels."""

    left: float
    bottom: float
    right: float
    top: float

    def overlap(self, other: Box) -> float:
        """Area in common, in square pixels."""
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.top, other.top) - max(self.bottom, other.bottom)
        return max(0.0, width) * max(0.0, height)

    def outside(self, frame: Box) -> float:
        """Area that lies outside of a frame, in square pixels."""
        return (self.right - self.left) * (self.top - self.bottom) - self.overlap(frame)


def around(centre: Pair, size: Pair) -> Box:
    """The rectangle of a size around a centre."""
    (x, y), (width, height) = centre, size
    return Box(x - width / 2, y - height / 2, x + width / 2, y + height / 2)


def covered(boxes: Sequence[Box], others: Sequence[Box]) -> np.ndarray:
    """Area in square pixels that each box has in common with all others together, shape (boxes,)."""
    if not others:
        return np.zeros(len(boxes))
    mine, theirs = (np.array([(b.left, b.bottom, b.right, b.top) for b in each]) for each in (boxes, others))
    low = np.maximum(mine[:, None, :2], theirs[None, :, :2])
    high = np.minimum(mine[:, None, 2:], theirs[None, :, 2:])
    return np.clip(high - low, 0, None).prod(axis=2).sum(axis=1)


def place_labels(
    points: Sequence[Pair], sizes: Sequence[Pair], obstacles: Sequence[Box], frame: Box, gap: float
) -> list[Pair]:
    """The centre of a label of each size beside its point, in pixels, in the same order.

    Each goes where it covers least of the obstacles, of the labels before it and of what is outside the frame,
    the nearest place first. ``gap`` is half the size of a point.
    """
    taken = list(obstacles)
    placed: list[Pair] = []
    for point, size in zip(points, sizes, strict=True):
        centres = _candidates(point, size, gap)
        boxes = [around(centre, size) for centre in centres]
        bad = covered(boxes, taken) + [4 * box.outside(frame) for box in boxes]
        best = int(np.argmax(bad < bad.min() + 1e-9))
        placed.append(centres[best])
        taken.append(boxes[best])
    return placed


def _candidates(point: Pair, size: Pair, gap: float) -> list[Pair]:
    places = []
    for distance in _DISTANCES:
        for angle in _ANGLES:
            dx, dy = math.cos(math.radians(angle)), math.sin(math.radians(angle))
            reach_x, reach_y = (gap + size[0] / 2) * distance, (gap + size[1] / 2) * distance
            places.append((point[0] + dx * reach_x, point[1] + dy * reach_y))
    return places
