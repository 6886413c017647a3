"""Labels beside points: nothing is covered that needn't be, whatever the points."""

from __future__ import annotations

import math

import numpy as np
import pytest

from flashperf.plots.labels import Box, Line, around, covered, place_labels, struck

FRAME = Box(0, 0, 440, 380)
GAP, DOT = 6.0, 11.0


def crowd(seed: int) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """Up to 18 points in log space, most of them in a few groups, and the sizes of their numbers."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 19))
    groups = rng.uniform(-2, 2, (3, 2))
    logs = groups[rng.integers(0, 3, count)] + rng.normal(0, rng.choice([0.05, 0.2, 0.6]), (count, 2))
    place = np.clip((logs + 2.5) / 5, 0.02, 0.98) * [FRAME.right, FRAME.top]
    return [(float(x), float(y)) for x, y in place], [(8.0 + 8.0 * (n >= 9), 11.0) for n in range(count)]


def roofs(seed: int) -> list[Line]:
    """Two slanted lines and a level one through the frame."""
    rng = np.random.default_rng([seed, 1])
    starts = rng.uniform(-200, 300, 2)
    level = float(rng.uniform(100, 370))
    return [*((0.0, float(y), 440.0, float(y) + 440.0) for y in starts), (0.0, level, 440.0, level)]


@pytest.mark.parametrize("seed", range(60))
def test_no_label_covers_another_or_a_point_and_all_are_inside(seed: int) -> None:
    points, sizes = crowd(seed)
    dots = [around(point, (DOT, DOT)) for point in points]
    placed = place_labels(points, sizes, dots, FRAME, GAP, roofs(seed))
    boxes = [around(centre, size) for centre, size in zip(placed, sizes, strict=True)]
    assert sum(a.overlap(b) for n, a in enumerate(boxes) for b in boxes[:n]) < 1e-6
    assert covered(boxes, dots).sum() < 1e-6
    assert all(box.outside(FRAME) < 1e-6 for box in boxes)
    assert placed == place_labels(points, sizes, dots, FRAME, GAP, roofs(seed))


def test_lines_are_avoided_where_there_is_room() -> None:
    """Of all labels of all crowds few are struck by a roof; of lone points none."""
    total = hit = 0
    for seed in range(60):
        points, sizes = crowd(seed)
        dots = [around(point, (DOT, DOT)) for point in points]
        placed = place_labels(points, sizes, dots, FRAME, GAP, roofs(seed))
        lengths = struck([around(c, s) for c, s in zip(placed, sizes, strict=True)], roofs(seed))
        total, hit = total + len(points), hit + int((lengths > 0).sum())
    assert hit <= 0.02 * total
    for y in np.linspace(150, 230, 17):
        (centre,) = place_labels([(220, 190)], [(9, 11)], [], FRAME, GAP, [(0, float(y), 440, float(y))])
        assert struck([around(centre, (9, 11))], [(0, float(y), 440, float(y))])[0] == 0


def test_a_lone_label_is_at_the_upper_right_and_moves_inside_at_a_corner() -> None:
    (centre,) = place_labels([(100, 100)], [(14, 10)], [], FRAME, 4.0)
    assert min(centre) > 100
    assert math.dist(centre, (100, 100)) < 20
    (corner,) = place_labels([(439, 379)], [(14, 10)], [], FRAME, 4.0)
    assert around(corner, (14, 10)).outside(FRAME) == 0
    assert place_labels([], [], [], FRAME, 4.0) == []


def test_areas_and_lengths_are_those_of_closed_forms() -> None:
    box = Box(0, 0, 10, 20)
    assert covered([box], [Box(5, 5, 15, 15), Box(0, 0, 2, 2)])[0] == pytest.approx(54)
    assert covered([box], [])[0] == 0
    assert box.overlap(Box(5, 5, 15, 15)) == 50
    assert box.outside(Box(0, 0, 10, 10)) == 100
    crossing: list[Line] = [(-5, 5, 15, 5), (5, -5, 5, 40), (-5, -5, 30, 30), (11, 0, 11, 20), (2, 2, 4, 2)]
    lengths = [struck([box], [line])[0] for line in crossing]
    assert lengths == pytest.approx([10, 20, 10 * math.sqrt(2), 0, 2], abs=1e-6)


def test_where_there_is_no_room_the_least_is_covered() -> None:
    """A label that is larger than its frame still gets a place, the same one every time."""
    tight = Box(0, 0, 8, 8)
    first = place_labels([(4, 4)] * 3, [(10, 10)] * 3, [], tight, 1.0)
    assert first == place_labels([(4, 4)] * 3, [(10, 10)] * 3, [], tight, 1.0)
    assert np.isfinite(first).all()
