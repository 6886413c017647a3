"""The options and markers of the pytest layer. Imports nothing: it is loaded in every pytest run."""

from __future__ import annotations

import argparse
from typing import Any

BUDGET_S = 150.0  # with collecting, checking and printing under 3 minutes on 2 cores
PROCESSES = 8

MARKERS = (
    "flashperf_gate(percent): judge this bench by a D of its own, such as '2%'",
    "flashperf_canary(name): the canary of this bench: compute, bandwidth, dispatch, page_fault, or kind/class",
)


def add_options(group: Any) -> None:
    """Adds them to an option group of pytest."""
    group.addoption(
        "--flashperf-budget",
        type=positive,
        default=BUDGET_S,
        metavar="SECONDS",
        help="Wall time for all benches of flashperf, the end-to-end one included (default: %(default)s).",
    )
    group.addoption(
        "--flashperf-cache",
        choices=("warm", "cold"),
        default="warm",
        help="Time isolated kernels with warm caches, or with caches emptied before every sample.",
    )
    group.addoption(
        "--flashperf-processes",
        type=count,
        default=PROCESSES,
        metavar="N",
        help="Worker processes that take turns (default: %(default)s). Below 6 nothing can be judged; 1 measures "
        "in pytest's own process, for debuggers and profilers.",
    )
    group.addoption(
        "--flashperf-gate",
        default=None,
        metavar="D%",
        help="With --benchmark-compare: what counts as slower (default: 5%%). Marker flashperf_gate overrides it.",
    )
    group.addoption(
        "--flashperf-fail-on",
        default=None,
        metavar="LIST",
        help="Outcomes that make the run fail: slower, missing, failed, not-comparable, new, cant-tell, or none "
        "(default: slower,missing,failed,not-comparable).",
    )
    group.addoption(
        "--flashperf-strict",
        action="store_true",
        help="Adjust 'no slower' for the number of benches too (Holm).",
    )
    group.addoption(
        "--flashperf-moderated",
        action="store_true",
        help="Borrow strength between benches for their spreads (limma's moderated variance; 6 benches or more).",
    )
    group.addoption(
        "--flashperf-markdown",
        default=None,
        metavar="FILE",
        help="Write the verdicts as markdown for a pull request.",
    )


def positive(text: str) -> float:
    """A positive number of seconds."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"invalid budget {text!r}: give a positive number of seconds")
    return value


def count(text: str) -> int:
    """A number of processes, 1 to 64."""
    if not text.isdigit() or not 1 <= int(text) <= 64:
        raise argparse.ArgumentTypeError(f"invalid number of processes {text!r}: give 1 to 64")
    return int(text)
