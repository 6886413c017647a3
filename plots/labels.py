"""Places small labels beside points so that they cover neither each other nor a point, nor a line if need be. Pure.

Every label has the same places to choose from: sixteen directions, nearest first, then further away. A place costs
what it covers, boxes being dearer than lines, and a little for its distance. The labels with the fewest free
places choose first; then each chooses again, given all others, until none moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Pair = tuple[float, float]
#: From, to: x, y, x, y in pixels.
Line = tuple[float, float, float, float]

#: Degrees; earlier ones are liked better.
_ANGLES = (45, 135, 315, 225, 90, 0, 180, 270, 22.5, 67.5, 112.5, 157.5, 337.5, 292.5, 247.5, 202.5)
_DISTANCES = (1.0, 1.3, 1.7, 2.2, 2.8, 3.6, 4.6, 5.8, 7.2, 9.0)
_ROUNDS = 12
#: Costs: of a step further away and of a less liked direction; of a line through the whole label; of touching a box.
_STEP, _TURN, _STRUCK, _TOUCHED = 1.0, 0.02, 6.0, 100.0


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


def place_labels(
    points: Sequence[Pair],
    sizes: Sequence[Pair],
    obstacles: Sequence[Box],
    frame: Box,
    gap: float,
    lines: Sequence[Line] = (),
) -> list[Pair]:
    """The centre of a label of each size beside its point, in pixels, in the same order.

    Labels stay off the obstacles, each other and what is outside the frame as far as there is room, and off the
    lines where that takes them not too far away. ``gap`` is half the size of a point.
    """
    if not points:
        return []
    centres = _candidates(np.array(points, float), np.array(sizes, float), gap)
    half = np.array(sizes, float)[:, None] / 2
    boxes = np.concatenate([centres - half, centres + half], axis=2)
    alone = _liking() + np.array([_cost(places, obstacles, frame, lines) for places in boxes])
    order = np.argsort((alone < _TOUCHED).sum(axis=1), kind="stable")
    chosen = np.full(len(points), -1)
    for _ in range(_ROUNDS):
        before = chosen.copy()
        for n in order:
            others = [boxes[m, chosen[m]] for m in order if m != n and chosen[m] >= 0]
            chosen[n] = np.argmin(alone[n] + _touched(boxes[n], np.array(others).reshape(-1, 4)))
        if (chosen == before).all():
            break
    return [(float(x), float(y)) for x, y in centres[np.arange(len(points)), chosen]]


def covered(boxes: Sequence[Box], others: Sequence[Box]) -> np.ndarray:
    """Area in square pixels that each box has in common with all others together, shape (boxes,)."""
    return _common(_array(boxes), _array(others)).sum(axis=1)


def struck(boxes: Sequence[Box], lines: Sequence[Line]) -> np.ndarray:
    """Length in pixels of all lines inside of each box, shape (boxes,)."""
    return _inside(_array(boxes), np.array(lines, float).reshape(-1, 4))


def _array(boxes: Sequence[Box]) -> np.ndarray:
    return np.array([(b.left, b.bottom, b.right, b.top) for b in boxes], float).reshape(-1, 4)


def _candidates(points: np.ndarray, sizes: np.ndarray, gap: float) -> np.ndarray:
    """Centres, shape (points, places, 2): all directions at the least distance, then further out."""
    radians = np.radians(_ANGLES)
    ways = np.stack([np.cos(radians), np.sin(radians)], axis=1)
    steps = (np.array(_DISTANCES)[:, None, None] * ways).reshape(-1, 2)
    return points[:, None] + steps * (gap + sizes / 2)[:, None]


def _liking() -> np.ndarray:
    """The cost of each place for its distance and its direction alone."""
    far, turned = np.arange(len(_DISTANCES)), np.arange(len(_ANGLES))
    return (_STEP * far[:, None] + _TURN * turned).reshape(-1)


def _cost(boxes: np.ndarray, obstacles: Sequence[Box], frame: Box, lines: Sequence[Line]) -> np.ndarray:
    """What labels would cover, shape (places,): obstacles, what is outside the frame, lines."""
    size = boxes[:, 2:] - boxes[:, :2]
    out = 1 - _common(boxes, _array([frame]))[:, 0] / size.prod(axis=1)
    away = np.where(out > 1e-9, 2 * _TOUCHED * (1 + out), 0)
    through = _inside(boxes, np.array(lines, float).reshape(-1, 4)) / size.max(axis=1)
    return _touched(boxes, _array(obstacles)) + away + _STRUCK * through


def _touched(boxes: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The cost of covering other boxes, shape (boxes,): any overlap is dear, a large one dearer."""
    part = _common(boxes, others) / (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)[:, None]
    return _TOUCHED * ((part > 1e-9) + part).sum(axis=1)


def _common(boxes: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Area that each box has in common with each other one, shape (boxes, others)."""
    low = np.maximum(boxes[:, None, :2], others[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], others[None, :, 2:])
    return np.clip(high - low, 0, None).prod(axis=2)


def _inside(boxes: np.ndarray, lines: np.ndarray) -> np.ndarray:
    """Length of all lines inside of each box, shape (boxes,): Liang and Barsky's clipping."""
    start, way = lines[None, :, :2], lines[None, :, 2:] - lines[None, :, :2]
    way = np.where(np.abs(way) < 1e-9, 1e-9, way)
    to_low, to_high = (boxes[:, None, :2] - start) / way, (boxes[:, None, 2:] - start) / way
    enters = np.minimum(to_low, to_high).max(axis=2, initial=0)
    leaves = np.maximum(to_low, to_high).min(axis=2, initial=1)
    return (np.clip(leaves - enters, 0, None) * np.linalg.norm(way, axis=2)).sum(axis=1)
