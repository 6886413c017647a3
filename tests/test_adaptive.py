"""The rule of adaptive precision: found from times, carried by the level, right for the logits."""

from __future__ import annotations

import pytest

from flashperf.pipeline.adaptive import NEVER, ROWS, asks_for_rule, measured_rule, rule_from, with_rule
from flashperf.pipeline.config import ModelConfig
from flashperf.pipeline.plan import product_format
from flashperf.pipeline.switches import STANDARD, parse_levels, precision_of

ADAPTIVE = parse_levels("precision=adaptive")
SINGLE = tuple(float(rows) for rows in ROWS)


@pytest.mark.parametrize(
    ("bf16_s", "rows"),
    [
        (tuple(0.5 * t for t in SINGLE), 1),
        (tuple(2 * t for t in SINGLE), NEVER),
        (tuple(t * (2 if t < 16 else 0.5) for t in SINGLE), 16),
        (tuple(t * (0.5 if t != 64 else 2) for t in SINGLE), 128),  # a dip before is not trusted
        (SINGLE, NEVER),
    ],
)
def test_rule_is_the_size_from_which_bf16_stays_faster(bf16_s: tuple[float, ...], rows: int) -> None:
    assert rule_from(SINGLE, bf16_s).rows == rows


def test_the_level_carries_the_rule() -> None:
    rule = rule_from(SINGLE, tuple(t * (2 if t < 16 else 0.5) for t in SINGLE))
    levels = with_rule(ADAPTIVE, rule)
    assert levels["precision"] == "adaptive:16"
    assert precision_of(levels) == "adaptive"
    assert [product_format(levels, rows) for rows in (15, 16)] == ["f32", "bf16"]
    assert with_rule(STANDARD, rule) == STANDARD
    assert asks_for_rule(STANDARD, ADAPTIVE)
    assert not asks_for_rule(STANDARD, levels)


def test_a_rule_is_measured() -> None:
    rule = measured_rule(ModelConfig("little", layers=1, dim=32, heads=2, ffn=64))
    assert rule.rows in (*ROWS, NEVER)
    assert all(second > 0 for second in (*rule.f32_s, *rule.bf16_s))
    assert len(rule.f32_s) == len(rule.bf16_s) == len(ROWS)
