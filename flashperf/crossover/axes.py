"""Which size of a case an axis means, and which variants cross on it. The one place where axes have names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flashperf.advice import title_of
from flashperf.errors import UserError
from flashperf.records import Case, Mechanism
from flashperf.suggest import unknown_name

#: Name of an axis -> the sizes that it can stand for, in this order; a tuple means that all of them grow together.
AXES: Mapping[str, tuple[str | tuple[str, ...], ...]] = {
    "length": (("rows", "keys"),),
    "rows": ("rows", "m", "tasks"),
    "cols": ("cols", "n"),
    "depth": ("k", "d"),
    "steps": ("steps",),
    "elements": ("n",),
}
#: What an axis is unless one is asked for: the first that the mechanism has.
DEFAULT_ORDER = ("length", "rows", "steps", "elements")
#: Work that grows with the square of an axis would take minutes at its far end.
DEFAULT_HIGH, DEFAULT_HIGH_SQUARED = 4096, 1024
#: Single elements: 4,096 of them are 16 kB, and what caches and page faults cost would never be seen.
DEFAULT_HIGH_ELEMENTS = 1 << 20


@dataclass(frozen=True)
class Axis:
    """A named direction in the sizes of a mechanism: ``keys`` are set together."""

    name: str
    keys: tuple[str, ...]

    def at(self, sizes: Mapping[str, int | str], value: int) -> dict[str, int | str]:
        """The sizes with this axis at a value."""
        return {**sizes, **dict.fromkeys(self.keys, value)}

    @property
    def default_high(self) -> int:
        """Where a range ends unless one is given."""
        if self.name == "elements":
            return DEFAULT_HIGH_ELEMENTS
        return DEFAULT_HIGH if len(self.keys) == 1 else DEFAULT_HIGH_SQUARED


def axis_of(mechanism: Mechanism, name: str | None = None) -> Axis:
    """The axis called ``name`` (an entry of AXES, or a size of the mechanism itself), or its default one.

    Raises UserError, naming the axes that there are, if the mechanism has no such size.
    """
    numbers = [key for key, value in mechanism.bench_sizes[0].items() if isinstance(value, int)]
    if name is None:
        found = next((axis for word in DEFAULT_ORDER if (axis := _named(word, numbers))), None)
        return found or Axis(numbers[0], (numbers[0],))
    axis = _named(name, numbers) or (Axis(name, (name,)) if name in numbers else None)
    if axis is None:
        valid = [word for word in AXES if _named(word, numbers)] + numbers
        raise UserError(unknown_name(f"axis of {mechanism.name}", name, dict.fromkeys(valid)))
    return axis


def _named(word: str, numbers: list[str]) -> Axis | None:
    """The axis of AXES, if all that it needs is there."""
    for choice in AXES.get(word, ()):
        keys = (choice,) if isinstance(choice, str) else choice
        if all(key in numbers for key in keys):
            return Axis(word, keys)
    return None


def base_sizes(mechanism: Mechanism, given: Mapping[str, int | str] | None = None) -> dict[str, int | str]:
    """The sizes of the first bench case that agrees with the words among ``given``, with ``given`` put in.

    Raises UserError for a size that the mechanism doesn't have, or a word that none of its cases has.
    """
    wanted = dict(given or {})
    known = mechanism.bench_sizes[0]
    for key in wanted:
        if key not in known:
            raise UserError(unknown_name(f"size of {mechanism.name}", key, known))
        if isinstance(known[key], int) and not isinstance(wanted[key], int):
            raise UserError(f"{key} of {mechanism.name} is a whole number, not {wanted[key]!r}")
    words = {key: value for key, value in wanted.items() if isinstance(known[key], str)}
    for sizes in mechanism.bench_sizes:
        if all(sizes[key] == value for key, value in words.items()):
            return {**sizes, **wanted}
    key, value = next(iter(words.items()))
    valid = dict.fromkeys(str(sizes[key]) for sizes in mechanism.bench_sizes)
    raise UserError(unknown_name(f"{key} of {mechanism.name}", str(value), valid))


def check_pair(mechanism: Mechanism, a: str, b: str, backend: str) -> None:
    """Raises UserError unless both are variants of the mechanism on that backend, and not the same."""
    for variant in (a, b):
        if variant not in mechanism.variants:
            raise UserError(unknown_name(f"variant of {mechanism.name}", variant, mechanism.variants))
        if backend not in mechanism.variants[variant]:
            where = mechanism.variants[variant]
            raise UserError(unknown_name(f"backend of {mechanism.name}/{variant}", backend, where))
    if backend != "cpu":
        raise UserError(f"crossovers are measured on the cpu backend so far, not on {backend}")
    if a == b:
        raise UserError(f"{a} can't cross itself: name two variants of {mechanism.name}")


def case_at(mechanism: Mechanism, variant: str, subject: Subject, value: int) -> Case:
    """The case of a variant at a value of the axis."""
    sizes = subject.axis.at(subject.sizes, value)
    return Case.of(mechanism.name, variant, subject.backend, subject.dtype, sizes, subject.seed)


@dataclass(frozen=True)
class Subject:
    """What crosses: two variants of a mechanism, with everything fixed but the axis."""

    mechanism: str
    a: str
    b: str
    backend: str
    dtype: str
    sizes: Mapping[str, int | str]
    axis: Axis
    seed: int = 0

    @property
    def fixed(self) -> dict[str, int | str]:
        """The sizes that stay as they are."""
        return {key: value for key, value in self.sizes.items() if key not in self.axis.keys}

    @property
    def title(self) -> str:
        """The mechanism and the words among its fixed sizes, such as ``fusion softmax``."""
        return title_of(self.mechanism, self.fixed)

    def __str__(self) -> str:
        fixed = ", ".join(f"{key}={value}" for key, value in self.fixed.items())
        return f"{self.mechanism} {self.backend} {self.dtype}" + (f", {fixed}" if fixed else "")
