"""The operator plan over every combination of levels, with no kernel run."""

from __future__ import annotations

import itertools

import pytest

from flashperf.errors import UserError
from flashperf.pipeline.plan import (
    ADAPTIVE_ROWS,
    CHUNKS,
    LINEAR_ROLES,
    KernelSpec,
    Op,
    needs_mask,
    plan,
    product_format,
)
from flashperf.pipeline.switches import FLASH_PRESETS, STANDARD, SWITCHES, all_mixtures, parse_levels

FEW, MANY = 1, 512  # rows of a product
OPS = [
    Op("norm"),
    Op("attention"),
    *(Op("mlp", "", rows) for rows in (FEW, MANY)),
    *(Op("linear", role, rows) for role in LINEAR_ROLES for rows in (FEW, MANY)),
]
#: Those that the plan looks at.
PLANNED = [name for name, switch in SWITCHES.items() if switch.seam == "operators"] + ["preprocessing"]
ALL_LEVELS = [
    {**STANDARD, **dict(zip(PLANNED, levels, strict=True))}
    for levels in itertools.product(*(SWITCHES[name].levels for name in PLANNED))
]


def test_standard_is_fp32_packed_fused_whole_and_online() -> None:
    assert plan(Op("linear", "qkv"), STANDARD) == KernelSpec("f32", "f32", "packed", "fused", 1)
    assert plan(Op("mlp"), STANDARD) == KernelSpec("f32", "f32", "packed", "fused", 1)
    assert plan(Op("norm"), STANDARD) == KernelSpec("f32", "f32", "rowwise", "fused", 1)
    assert plan(Op("attention"), STANDARD) == KernelSpec("f32", "f32", "online", "fused", 1)


def test_every_combination_has_a_plan_for_every_operator() -> None:
    for levels in ALL_LEVELS:
        for op in OPS:
            spec = plan(op, levels)
            assert spec.format in {"f32", "mixed", "bf16", "f16", "int8", "int8_static", "w8"}
            assert spec.storage in {"f32", "bf16", "f16"}
            assert spec.chunks in {1, CHUNKS}


@pytest.mark.parametrize(
    "levels", ALL_LEVELS[:: len(ALL_LEVELS) // 97], ids=lambda levels: "-".join(levels.values())
)
def test_rules_where_switches_meet(levels: dict[str, str]) -> None:
    mlp, qkv, attention = (
        plan(Op("mlp"), levels),
        plan(Op("linear", "qkv"), levels),
        plan(Op("attention"), levels),
    )
    over = levels["fusion"] == "over"
    by_precision = product_format(levels, rows=FEW)
    assert qkv.format == by_precision, "quantization leaves every other product to precision"
    assert (
        mlp.format
        == {
            "none": by_precision,
            "int8_dynamic": "int8",
            "int8_static": "int8" if over else "int8_static",
            "weight_only": by_precision if over else "w8",
        }[levels["quantization"]]
    ), "quantization owns the products of the MLP"
    if over:
        assert (mlp.algorithm, mlp.chunks) == ("over", 1), (
            "over-fusion overrides tiling and launch inside the MLP"
        )
    else:
        assert mlp.algorithm == qkv.algorithm == {"blocked": "packed"}.get(levels["tiling"], levels["tiling"])
        assert mlp.chunks == (CHUNKS if levels["launch"] == "chunked" else 1)
    assert mlp.storage == qkv.storage == attention.storage
    assert (attention.algorithm == "materialised") == (levels["attention"] == "materialised")
    assert needs_mask(levels) == (attention.algorithm != "online")


def test_adaptive_precision_looks_at_the_rows_and_at_the_rule() -> None:
    levels = {**STANDARD, "precision": "adaptive:32"}
    few, enough = (plan(Op("linear", "qkv", rows), levels) for rows in (31, 32))
    assert few == plan(Op("linear", "qkv", 31), STANDARD)
    assert (enough.format, enough.storage, enough.casts) == ("bf16", "f32", True)
    assert enough.epilogue == "kernel", "a product between casts has no room for an epilogue"
    assert product_format({**STANDARD, "precision": "adaptive"}, ADAPTIVE_ROWS) == "bf16"
    assert product_format({**STANDARD, "precision": "adaptive"}, ADAPTIVE_ROWS - 1) == "f32"


@pytest.mark.parametrize("name", [name for name in SWITCHES if SWITCHES[name].seam == "operators"])
def test_every_level_of_an_operator_switch_changes_the_plan_of_standard(name: str) -> None:
    for level in list(SWITCHES[name].levels)[1:]:
        changed = {**STANDARD, name: level}
        assert any(plan(op, changed) != plan(op, STANDARD) for op in OPS), f"{name}={level} changes nothing"


def test_an_unknown_operator_is_an_error() -> None:
    for op in (Op("conv"), Op("linear", "gate"), Op("linear")):
        with pytest.raises(ValueError, match="no such operator"):
            plan(op, STANDARD)


def test_presets_name_known_levels_that_differ_from_standard() -> None:
    for preset in FLASH_PRESETS.values():
        for name, level in preset.items():
            assert level in SWITCHES[name].levels
            assert level != STANDARD[name]


def test_levels_are_parsed_with_presets_and_pairs() -> None:
    assert parse_levels("") == STANDARD
    assert parse_levels("a") == {**STANDARD, **FLASH_PRESETS["a"]}
    assert parse_levels("b, precision=bf16") == {**STANDARD, **FLASH_PRESETS["b"], "precision": "bf16"}
    assert parse_levels("a,tiling=blocked")["tiling"] == "blocked"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("precison=f32", "did you mean precision"),
        ("precision=bf61", "did you mean bf16"),
        ("c", "unknown variant 'c'"),
        ("tiling=", "unknown level of tiling ''"),
    ],
)
def test_unknown_names_are_answered_with_the_nearest(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse_levels(text)


def test_mixtures_set_bit_i_for_the_ith_name() -> None:
    flash = parse_levels("a")
    names = ("precision", "tiling", "fusion")
    mixtures = all_mixtures(STANDARD, flash, names)
    assert len(mixtures) == 8
    assert mixtures[0] == STANDARD
    for mask, mixture in enumerate(mixtures):
        for bit, name in enumerate(names):
            assert mixture[name] == (flash if mask >> bit & 1 else STANDARD)[name]
