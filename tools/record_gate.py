"""Records trials of the gate on this machine: identical code, and slowdowns planted on purpose.

    python tools/record_gate.py results/MACHINE/gate-trials.jsonl [SUITES] [SECONDS A BENCH]

60 suites of identical code by default, 15 of them beside the rules of other tools, and 11 with something planted,
spread evenly among them. `flashperf selfcheck gate --from FILE` prints what they say. Takes about half an hour.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from flashperf.gate.trials import record_trials, suite_cases

PLANTED = [
    (0.05, "delay"), (0.02, "delay"), (0.10, "touch"), (0.01, "delay"), (0.05, "touch"), (0.02, "touch"),
    (0.10, "delay"), (0.01, "touch"), (0.05, "delay"), (0.02, "delay"), (0.05, "touch"),
]  # fmt: skip
WITH_OTHERS = 15


def plan(suites: int, budget_s: float) -> list[dict[str, Any]]:
    """Arguments of every suite, in the order of measuring."""
    identical = [
        {"effect": 0.0, "plant": "", "budget_s": budget_s, "rivals": n % max(1, suites // WITH_OTHERS) == 0}
        for n in range(suites)
    ]
    every = max(1, suites // len(PLANTED))
    for n, (effect, kind) in enumerate(PLANTED):
        place = n * (every + 1) + 1
        identical.insert(place, {"effect": effect, "plant": kind, "budget_s": budget_s})
    return identical


def main() -> None:
    """Record, and say how far it is."""
    path = Path(sys.argv[1])
    suites = int(sys.argv[2]) if len(sys.argv) > 2 else 60
    budget_s = float(sys.argv[3]) if len(sys.argv) > 3 else 0.4
    names = suite_cases()
    record_trials(
        path, plan(suites, budget_s), names, lambda done, total, name: print(done, total, name, flush=True)
    )


if __name__ == "__main__":
    main()
