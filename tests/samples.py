"""Small synthetic explanations for tests of everything that a user sees; numbers are made up, and add up."""

from __future__ import annotations

import dataclasses
import math

from sample_parts import BUSY, amount, attribution, exactly, explanation, inactive, ratio

from flashperf.records import Advice, Explanation, Interaction, Interval, Metric


def _metrics() -> tuple[Metric, ...]:
    """The rows of the two source documents' tables, for a Flash that is slower."""
    return (
        Metric(
            "task latency", "s", "lower", amount(0.0312, 0.0003), amount(0.0661, 0.0008), ratio(2.12, 0.016)
        ),
        Metric(
            "time to first token",
            "s",
            "lower",
            amount(0.0121, 0.0002),
            amount(0.0297, 0.0005),
            ratio(2.45, 0.02),
        ),
        Metric("throughput", "tasks/s", "higher", amount(32.1, 0.3), amount(15.1, 0.2), ratio(0.472, 0.016)),
        Metric(
            "peak memory",
            "MB",
            "lower",
            amount(61.2),
            amount(55.0),
            exactly(0.899),
            "resident, whole process",
        ),
        Metric(
            "CPU utilisation", "fraction", "", amount(0.978, 0.006), amount(0.981, 0.005), ratio(1.003, 0.008)
        ),
        Metric("quality", "bits/byte", "lower", amount(1.802), amount(1.811), exactly(1.811 / 1.802)),
        Metric(
            "next-byte accuracy", "fraction", "higher", amount(0.621), amount(0.618), exactly(0.618 / 0.621)
        ),
        Metric(
            "kernel-time share", "fraction", "", amount(0.874, 0.01), amount(0.803, 0.01), ratio(0.919, 0.017)
        ),
        Metric("energy", "J", "lower", None, None, None, "this machine gives no access to RAPL counters"),
    )


def paradox() -> Explanation:
    """The usual case: Flash is slower, one switch helps, one is inactive, a pair interacts."""
    parts: dict = {
        ("precision", "f32", "mixed"): (1.214, 1.19, 1.23, 1.20),
        ("quantization", "none", "int8_dynamic"): (0.927, 0.95, 0.90, 0.93),
        ("tiling", "blocked", "bad_tile"): (1.441, 1.62, 1.30, 1.46),
        ("fusion", "fused", "split"): (1.083, 1.06, 1.10, 1.05),
        ("launch", "whole", "chunked"): (1.118, 1.05, 1.18, 1.02),
        ("attention", "online", "materialised"): (1.012, 1.00, 1.02, 1.01),
        ("preprocessing", "cached", "rebuilt"): (1.104, 1.15, 1.06, 1.12),
        ("checkpoint", "none", "every_n sync"): (1.006, 1.01, 1.00, 1.00),
    }
    pairs = (
        Interaction(("tiling", "launch"), ratio(1.09, 0.05), ratio(1.12, 0.05), True, ratio(1.105, 0.03)),
        Interaction(("precision", "tiling"), ratio(0.93, 0.04), ratio(0.95, 0.05), True, ratio(0.94, 0.03)),
        Interaction(("fusion", "attention"), ratio(1.01, 0.04), ratio(1.00, 0.04), False, ratio(1.005, 0.03)),
    )
    found = attribution(
        parts,
        extra=(inactive("span", "full", "window"),),
        interactions=pairs,
        smallest_detectable_interaction=1.04,
        notes=("tiling: the share depends on the process (memory placement)",),
    )
    advice = Advice(
        "tiling", "bad_tile", "blocked", ratio(0.709, 0.02), ratio(found.total.value * 0.709, 0.02)
    )
    return explanation(
        found, metrics=_metrics(), advice=advice, notes=("span: full and window plan the same calls",)
    )


def faster() -> Explanation:
    """Flash is what it is sold as; one switch holds it back; percentages are those of the log speed-up."""
    parts: dict = {
        ("quantization", "none", "int8_dynamic"): (0.62, 0.65, 0.60, 0.61),
        ("attention", "online", "window"): (0.91, 0.92, 0.90, None),
        ("preprocessing", "cached", "rebuilt"): (1.07, 1.08, 1.06, 1.07),
    }
    pair = Interaction(
        ("attention", "quantization"), ratio(1.0, 0.03), ratio(1.0, 0.03), False, ratio(1.0, 0.02)
    )
    found = attribution(parts, half_log=0.006, interactions=(pair,), smallest_detectable_interaction=1.023)
    advice = Advice("preprocessing", "rebuilt", "cached", ratio(0.935, 0.01), ratio(0.566, 0.01))
    return explanation(found, advice=advice)


def single_switch() -> Explanation:
    """A user's own factory with one switch: its share is the total."""
    found = attribution({("compile", "False", "True"): (1.31, 1.31, 1.31, None)}, half_log=0.02)
    return explanation(found, subject="mymodel:build")


def partial() -> Explanation:
    """Stopped by Ctrl-C after one worker had a cycle: there are estimates and no intervals."""
    parts: dict = {
        ("precision", "f32", "mixed"): (1.2, 1.1, 1.3, None),
        ("tiling", "blocked", "bad_tile"): (1.4, 1.5, 1.3, None),
    }
    found = attribution(parts, percent=False)
    open_ended = [
        dataclasses.replace(
            share,
            share=dataclasses.replace(share.share, low=0.0, high=math.inf),
            alone=Interval(math.nan, 0.0, math.inf),
            on_top=dataclasses.replace(share.on_top, low=0.0, high=math.inf),
        )
        for share in found.shares
    ]
    found = dataclasses.replace(
        found,
        shares=tuple(open_ended),
        total=dataclasses.replace(found.total, low=0.0, high=math.inf),
        workers=1,
        runs=12,
        seconds=6.2,
        stopped="interrupted",
        widest_half_width_log=math.inf,
        notes=("one worker: there is no interval",),
    )
    return explanation(found, partial=True, busy=True, environment=BUSY, seconds=9.9)


def nothing() -> Explanation:
    """Two variants that can't be told apart on a busy machine."""
    parts: dict = {
        ("fusion", "fused", "split"): (1.02, 1.01, 1.03, 1.00),
        ("launch", "whole", "chunked"): (0.99, 0.98, 1.01, 1.00),
    }
    pair = Interaction(("fusion", "launch"), ratio(1.01, 0.06), ratio(1.01, 0.06), False, ratio(1.01, 0.06))
    found = attribution(
        parts, half_log=0.06, percent=False, interactions=(pair,), smallest_detectable_interaction=1.09
    )
    advice = Advice("fusion", "split", "fused", ratio(0.98, 0.06), ratio(0.99, 0.06))
    return explanation(found, advice=advice, busy=True, environment=BUSY)


HOSTILE = "<script>alert('x')</script>"


def hostile() -> Explanation:
    """Names from a user's factory that try to be markup: HTML, rich, TeX, ANSI, a line break."""
    parts: dict = {
        (HOSTILE, "[red]a & b[/red]", 'x"y'): (1.3, 1.3, 1.3, 1.2),
        ("$x_1$ \x1b[31m", "line\nbreak", "{{ 7 * 7 }}"): (0.9, 0.9, 0.9, 0.9),
        ("a_very_long_switch_name_that_someone_made_up", "some_long_level", "an_even_longer_level"): (
            1,
            1,
            1,
            1,
        ),
    }
    pair = Interaction((HOSTILE, "$x_1$ \x1b[31m"), ratio(1.2), ratio(1.2), True, ratio(1.2))
    found = attribution(parts, interactions=(pair,), notes=("</style><b>note</b>",))
    advice = Advice(HOSTILE, 'x"y', "[red]a & b[/red]", ratio(0.8), ratio(1.0))
    metric = Metric("<i>latency</i>", "s", "lower", amount(0.1), amount(0.2), ratio(2.0), "[bold]why[/bold]")
    return explanation(found, subject="mod:<b>f</b>", advice=advice, metrics=(metric,), notes=("a < b & c",))


ALL = {
    "paradox": paradox,
    "faster": faster,
    "single_switch": single_switch,
    "partial": partial,
    "nothing": nothing,
    "hostile": hostile,
}
