"""Reads what ``flashperf advise`` wrote, and chooses a variant by it: cheap enough to call before every launch.

    table = flashperf.advice("advice.json")
    table.choose("fusion", rows=300)          # "fused"

Only the standard library is needed.
"""

from __future__ import annotations

import json
import operator
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flashperf.errors import UserError
from flashperf.processor import cpu_model
from flashperf.suggest import unknown_name

SCHEMA = 1


@dataclass(frozen=True)
class Rule:
    """Which variant of a mechanism to use along one axis, all else as in ``fixed``.

    axis: its name; keys: the sizes that it stands for. use[0] below thresholds[0], use[1] from there on, and so
    on. low and high: the sizes that were measured; beyond them the nearest is taken. decided: False where it could
    not be told; ``use`` is then the standard variant. note: what cut the range short, if anything did.
    """

    mechanism: str
    backend: str
    dtype: str
    fixed: dict[str, Any]
    axis: str
    keys: tuple[str, ...]
    low: int
    high: int
    thresholds: tuple[int, ...]
    use: tuple[str, ...]
    decided: bool
    words: str = ""
    note: str = ""

    @property
    def sentence(self) -> str:
        """What to use, and what cut the range short."""
        return "; ".join(filter(None, (self.words, self.note)))

    @property
    def axis_names(self) -> tuple[str, ...]:
        """The names under which ``choose`` of a table takes the size."""
        return tuple(dict.fromkeys((self.axis, *self.keys)))

    @property
    def title(self) -> str:
        """As ``title_of`` has it."""
        return title_of(self.mechanism, self.fixed)

    def choose(self, size: int) -> str:
        """The variant for a size on the axis; beyond what was measured, as at the nearest size that was."""
        return self.use[bisect_right(self.thresholds, size)]


def title_of(mechanism: str, fixed: Mapping[str, Any]) -> str:
    """The mechanism and the words among its fixed sizes, such as ``fusion softmax``."""
    return " ".join([mechanism, *(value for value in fixed.values() if isinstance(value, str))])


@dataclass(frozen=True)
class AdviceTable:
    """The rules of one machine.

    device: the processor that they were measured on; left_out: mechanisms without a rule, and why; busy: why the
    machine was busy then, "" where it wasn't
    """

    device: str
    rules: tuple[Rule, ...]
    left_out: tuple[tuple[str, str], ...] = ()
    busy: str = ""

    def rule(
        self, mechanism: str, *, backend: str | None = None, dtype: str | None = None, **sizes: Any
    ) -> Rule:
        """The first rule of a mechanism that agrees with all that is given.

        A size that a rule has fixed must be equal where it is a word (``op="softmax"``); numbers are those that
        were measured and may differ. Raises UserError, with what there is, if no rule agrees.
        """
        known = [rule for rule in self.rules if rule.mechanism == mechanism]
        if not known:
            raise UserError(
                unknown_name("mechanism in the advice", mechanism, {r.mechanism for r in self.rules})
            )
        for rule in known:
            if backend in (None, rule.backend) and dtype in (None, rule.dtype) and _agrees(rule, sizes):
                return rule
        asked = ", ".join(
            f"{name}={value}"
            for name, value in {**sizes, "backend": backend, "dtype": dtype}.items()
            if value
        )
        having = "; ".join(f"{r.backend} {r.dtype} {r.fixed} by {' or '.join(r.axis_names)}" for r in known)
        raise UserError(f"no advice on {mechanism} for {asked or 'no size'}; there is: {having}")

    def choose(
        self, mechanism: str, *, backend: str | None = None, dtype: str | None = None, **sizes: Any
    ) -> str:
        """The variant to use, such as ``choose("fusion", rows=300, op="softmax")``. Raises UserError as ``rule``.

        The size along the rule's axis must be among ``sizes``, under the axis's name or that of the size.
        """
        rule = self.rule(mechanism, backend=backend, dtype=dtype, **sizes)
        size = next(sizes[name] for name in rule.axis_names if name in sizes)
        try:
            return rule.choose(operator.index(size))
        except TypeError:
            raise UserError(f"{rule.axis} is a whole number, not {size!r}") from None


def _agrees(rule: Rule, sizes: dict[str, Any]) -> bool:
    if not any(name in sizes for name in rule.axis_names) or not sizes.keys() <= {
        *rule.axis_names,
        *rule.fixed,
    }:
        return False
    return all(
        rule.fixed[name] == value for name, value in sizes.items() if isinstance(rule.fixed.get(name), str)
    )


def advice(path: str | Path, *, any_machine: bool = False) -> AdviceTable:
    """Load a file of ``flashperf advise``.

    any_machine: also take what was measured on another processor, for reading rather than for choosing by it.

    Raises UserError, naming the file, if it isn't one, or if it is of another processor.
    """
    table = _read(path)
    here = cpu_model()
    if not any_machine and table.rules and table.device != here:
        raise UserError(
            f"{path} was measured on {table.device or 'an unknown processor'}, and this is {here}: "
            "run flashperf advise here, or load it with any_machine=True"
        )
    return table


def _read(path: str | Path) -> AdviceTable:
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"can't read {path}: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"{path} is no JSON: {error}") from error
    if not isinstance(data, dict) or data.get("program") != "flashperf advise":
        raise UserError(f"{path} is no advice (flashperf advise writes it)")
    if data.get("schema") != SCHEMA:
        raise UserError(f"{path} has schema {data.get('schema')!r}; this flashperf reads {SCHEMA}")
    try:
        left_out = tuple((str(name), str(why)) for name, why in data.get("left_out", ()))
        rules = tuple(_rule(item) for item in data["rules"])
        return AdviceTable(str(data["device"]), rules, left_out, str(data.get("busy", "")))
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is damaged: {type(error).__name__} {error}") from error


def _rule(item: dict[str, Any]) -> Rule:
    fields = {**item, **{name: tuple(item[name]) for name in ("keys", "thresholds", "use")}}
    rule = Rule(**fields)
    rising = list(rule.thresholds) == sorted(rule.thresholds)
    if len(rule.use) != len(rule.thresholds) + 1 or not rising:
        raise ValueError(f"thresholds {rule.thresholds} don't divide {rule.use}")
    return rule
