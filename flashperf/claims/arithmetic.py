"""What the documents' own numbers give: slips in their arithmetic, shown beside what they print. Pure."""

from __future__ import annotations

from collections.abc import Sequence

STANDARD_MIN, FLASH_MIN = 6.8, 14.4
STANDARD_TASKS_PER_H, FLASH_TASKS_PER_H = 8.82, 4.17


def increase_percent(before: float, after: float) -> float:
    """By how many percent ``after`` is more than ``before``."""
    return 100 * (after / before - 1)


def slip_of_latency() -> str:
    """Document A prints the increase of its latency."""
    right = increase_percent(STANDARD_MIN, FLASH_MIN)
    return f"printed +111.7 %; {FLASH_MIN} / {STANDARD_MIN} is {FLASH_MIN / STANDARD_MIN:.3f}, +{right:.1f} %"


def slip_of_throughput() -> str:
    """Document B prints what remains of its throughput as what is lost."""
    remains = 100 * FLASH_TASKS_PER_H / STANDARD_TASKS_PER_H
    return f"printed as 47.3 % lower; {remains:.1f} % is what remains, {100 - remains:.1f} % is lost"


Kernel = tuple[float, float]  # start and end, in seconds


def utilisation_as_printed(kernels: Sequence[Kernel]) -> float:
    """Document B's metric: the sum of all kernel times over last start - first start.

    Kernels that overlap count twice and the last one's own time is left out, so it can exceed 1.
    """
    starts = [start for start, _ in kernels]
    return sum(end - start for start, end in kernels) / (max(starts) - min(starts))


def utilisation(kernels: Sequence[Kernel]) -> float:
    """The time in which at least one kernel ran over last end - first start; between 0 and 1."""
    busy, reached = 0.0, float("-inf")
    for start, end in sorted(kernels):
        busy += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return busy / (max(end for _, end in kernels) - min(start for start, _ in kernels))


#: Two kernels that overlap, a gap, and a long last one.
EXAMPLE: tuple[Kernel, ...] = ((0.0, 4.0), (2.0, 6.0), (8.0, 12.0))


def slip_of_utilisation() -> str:
    """Document B's metric on an example, beside the union over the true span."""
    printed, right = utilisation_as_printed(EXAMPLE), utilisation(EXAMPLE)
    return (
        f"on kernels at {', '.join(f'{a:g}-{b:g}' for a, b in EXAMPLE)} s the printed formula gives {printed:.0%}; "
        f"the union over the true span is {right:.0%}"
    )
