"""What the synthetic explanations of samples.py are made of: two machines, and attributions that add up."""

from __future__ import annotations

import dataclasses
import math

from flashperf.records import Attribution, Environment, Explanation, Interval, Share

QUIET = Environment(
    device="Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz",
    isa=("avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8"),
    threads=1,
    cores=2,
    quota_cores=2.0,
    clock_mhz=2700.0,
    load_1min=0.18,
    pressure_some_avg10=0.0,
    timer="perf_counter",
    timer_resolution_s=4.1e-8,
    python="3.11.7",
    os="Linux 6.1.0 x86_64",
    compiler="g++ 12.2.0",
    driver="",
    versions={"numpy": "2.3.1", "scipy": "1.16.0"},
    commit="1f2e3d4c5b6a",
    dirty=False,
    busy=False,
)
BUSY = dataclasses.replace(
    QUIET,
    load_1min=3.42,
    pressure_some_avg10=37.5,
    dirty=True,
    busy=True,
    busy_reason="load 3.4 on 2 cores, 38 % of the time some task waited for a CPU",
)


def ratio(value: float, half_log: float = 0.015) -> Interval:
    """A ratio with an interval of +- half_log in log units."""
    return Interval(value, value * math.exp(-half_log), value * math.exp(half_log))


def amount(value: float, half: float = 0.0) -> Interval:
    """A quantity with a symmetric interval, in its own unit."""
    return Interval(value, value - half, value + half)


def exactly(value: float) -> Interval:
    """A ratio that is exact."""
    return Interval(value, value, value)


ONE = exactly(1.0)


def inactive(switch: str, standard: str, flash: str) -> Share:
    """A switch that changes no planned call."""
    return Share(switch, standard, flash, False, ONE, amount(0.0), ONE, ONE, ONE, ONE, ONE)


def attribution(
    parts: dict[tuple[str, str, str], tuple[float, float, float, float | None]],
    *,
    half_log: float = 0.015,
    extra: tuple[Share, ...] = (),
    percent: bool = True,
    **changes: object,
) -> Attribution:
    """{(switch, standard, flash): (share, alone, on top, predicted)}; the total is their product."""
    total = math.prod(share for share, *_ in parts.values())
    shares = []
    for names, (share, alone, on_top, predicted) in parts.items():
        points = 100 * math.log(share) / math.log(total) if percent else math.nan
        shares.append(
            Share(
                *names,
                True,
                ratio(share, half_log),
                amount(points, 100 * half_log / abs(math.log(total))) if percent else None,
                ratio(alone, 3 * half_log),
                ratio(on_top, 3 * half_log),
                None if predicted is None else ratio(predicted, half_log / 2),
                None if predicted is None else ratio(predicted * 1.03, half_log / 2),
                None if predicted is None else ratio(share / predicted, 1.1 * half_log),
                1.2,
            )
        )
    unexplained = [abs(math.log(s.unexplained.value)) for s in shares if s.unexplained]
    widest = max((s.percent.half_width for s in shares if s.percent), default=None)
    base = Attribution(
        total=ratio(total, 1.4 * half_log),
        shares=(*shares, *extra),
        interactions=(),
        workers=9,
        runs=936,
        repeated=4,
        seconds=41.0,
        stopped="budget",
        widest_half_width_log=half_log,
        widest_half_width_percent=widest,
        sum_unexplained_log=sum(unexplained) if unexplained else None,
    )
    return dataclasses.replace(base, **changes)


def explanation(attribution: Attribution, **changes: object) -> Explanation:
    """An explanation without metrics or advice, to be changed."""
    base = Explanation(
        subject="pipeline small, scenario single",
        environment=QUIET,
        standard={share.switch: share.standard for share in attribution.shares},
        flash={share.switch: share.flash for share in attribution.shares},
        metrics=(),
        attribution=attribution,
        advice=None,
        seed=0,
        budget_s=60.0,
        seconds=57.3,
        busy=False,
    )
    return dataclasses.replace(base, **changes)
