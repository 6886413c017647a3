"""Which of the measured groups count: those of whole cycles."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from flashperf.attribution.design import CONFIRM, PAIR, QUAD, Observation, exact_pairs

Cycles = dict[int, list[list[Observation]]]  # worker -> its cycles in run order


def usable_cycles(observations: Sequence[Observation], k: int) -> tuple[Cycles, tuple[str, ...]]:
    """The cycles of each worker that count, and notes on those that do not.

    Only whole cycles count; if no worker has one, all that was measured does. Raises ValueError for a mixture
    with a switch beyond the k active ones.
    """
    found: dict[int, dict[int, list[Observation]]] = defaultdict(lambda: defaultdict(list))
    for observation in observations:
        if observation.group.kind != CONFIRM:
            if any(mask >> k for mask in observation.group.masks):
                raise ValueError(
                    f"mixture {max(observation.group.masks):b} has a switch beyond the {k} active ones"
                )
            found[observation.worker][observation.cycle].append(observation)
    whole = {
        worker: [cycle for _, cycle in sorted(cycles.items()) if _is_whole(cycle, k)]
        for worker, cycles in sorted(found.items())
    }
    if not any(whole.values()):
        return {w: [c for _, c in sorted(cycles.items())] for w, cycles in sorted(found.items())}, (
            ("no worker finished a cycle; this rests on unfinished ones",) if found else ()
        )
    return {w: cycles for w, cycles in whole.items() if cycles}, _left_out(found, whole)


def _is_whole(cycle: Sequence[Observation], k: int) -> bool:
    """Whether every quad and all complement pairs were measured, whose weights make up any number of them."""
    quads = {o.group.switch for o in cycle if o.group.kind == QUAD}
    pairs = sum(o.group.weight for o in cycle if o.group.kind == PAIR)
    return len(quads) == k and pairs > exact_pairs(k) - 1e-6


def _left_out(found: Mapping[int, Mapping], whole: Mapping[int, Sequence]) -> tuple[str, ...]:
    without = [str(worker) for worker, cycles in whole.items() if not cycles]
    unfinished = sum(len(found[worker]) - len(cycles) for worker, cycles in whole.items())
    notes = []
    if unfinished:
        notes.append(f"{unfinished} unfinished cycle{'s' * (unfinished > 1)} left out")
    if without:
        notes.append(f"no whole cycle from worker {', '.join(without)}")
    return tuple(notes)
