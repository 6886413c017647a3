"""The rule of ``precision=adaptive``: from how many rows on a product is faster in bf16, casts included.

Measured for the model's own products, both ways, in one process before anything else is: the rule is then the
same for every mixture and every worker, and it stands in the record.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from flashperf.mechanisms._products import packed_spec
from flashperf.pipeline.config import ModelConfig
from flashperf.pipeline.engine import Engine, PlannedCall
from flashperf.pipeline.engines import engine_of
from flashperf.pipeline.switches import Levels

ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
NEVER = 1 << 30  # rows that no step has
_SAMPLE_S, _SAMPLES = 200e-6, 5


@dataclass(frozen=True)
class Rule:
    """bf16 for ``rows`` rows and more; ``f32_s`` and ``bf16_s`` are a layer's products for each of ROWS."""

    rows: int
    f32_s: tuple[float, ...]
    bf16_s: tuple[float, ...]

    def level(self) -> str:
        """The level of precision that carries this rule."""
        return f"adaptive:{self.rows}"


def asks_for_rule(*variants: Levels) -> bool:
    """Whether any of these variants needs a rule that it doesn't carry."""
    return any(levels["precision"] == "adaptive" for levels in variants)


def with_rule(levels: Levels, rule: Rule) -> dict[str, str]:
    """The levels with the rule in place of a bare ``adaptive``."""
    precision = rule.level() if levels["precision"] == "adaptive" else levels["precision"]
    return {**levels, "precision": precision}


def rule_from(f32_s: tuple[float, ...], bf16_s: tuple[float, ...]) -> Rule:
    """The smallest of ROWS from which on bf16 is faster at every size; NEVER if it isn't at the largest."""
    rows = NEVER
    for size, single, half in zip(reversed(ROWS), reversed(f32_s), reversed(bf16_s), strict=True):
        if half >= single:
            break
        rows = size
    return Rule(rows, f32_s, bf16_s)


def measured_rule(config: ModelConfig, backend: str = "cpu") -> Rule:
    """Time the products of one layer at each of ROWS, in f32 and in bf16 between casts; about a second on a CPU."""
    engine = engine_of(backend)
    shapes = [(config.dim, 3 * config.dim), (config.dim, config.dim)]
    shapes += [(config.dim, config.ffn), (config.dim, config.ffn), (config.ffn, config.dim)]
    times: dict[str, list[float]] = {"f32": [], "bf16": []}
    for rows in ROWS:
        for dtype, found in times.items():
            calls = [call for k, n in shapes for call in _product(engine, rows, k, n, dtype)]
            found.append(_seconds(engine.sequence(calls), engine.wait))
    return rule_from(tuple(times["f32"]), tuple(times["bf16"]))


def _product(engine: Engine, m: int, k: int, n: int, dtype: str) -> list[PlannedCall]:
    """A product of x [m, k] and a packed weight [k, n] with f32 outside; the calls that it takes.

    Arrays hold zeros: what the numbers are changes little of a ratio of times.
    """
    x, y = engine.empty((m, k), "f32"), engine.empty((m, n), "f32")
    packed = engine.empty(packed_spec(k, n, dtype).shape, dtype)
    if dtype == "f32":
        return [engine.prepare("gemm_f32_packed", x, packed, y)]
    x_half, y_half = engine.empty((m, k), dtype), engine.empty((m, n), dtype)
    return [
        engine.prepare(f"cast_f32_{dtype}", x.reshape(-1), x_half.reshape(-1)),
        engine.prepare(f"gemm_{dtype}_packed", x_half, packed, y_half),
        engine.prepare(f"cast_{dtype}_f32", y_half.reshape(-1), y.reshape(-1)),
    ]


def _seconds(run: Callable[[], None], wait: Callable[[], None]) -> float:
    """The fastest of a few samples, each of many runs: disturbances only add."""
    run()
    run()  # a GPU's graph is recorded in its first run and launched from the second on
    wait()
    begin = time.perf_counter()
    run()
    wait()
    count = max(1, round(_SAMPLE_S / max(time.perf_counter() - begin, 1e-7)))
    best = np.inf
    for _ in range(_SAMPLES):
        begin = time.perf_counter()
        for _ in range(count):
            run()
        wait()
        best = min(best, (time.perf_counter() - begin) / count)
    return float(best)
