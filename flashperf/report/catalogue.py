"""The mechanism catalogue as Markdown, from the registry and the definitions' own docstrings."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator

from flashperf.pipeline.switches import SWITCHES
from flashperf.records import Mechanism
from flashperf.registry import PACKAGE, mechanisms


def catalogue() -> str:
    """Every mechanism: its question, what its variants are, where they run, how to bench and where it acts."""
    found = mechanisms()
    names = ", ".join(f"[{m.name}](#{m.name})" for m in found)
    return "\n".join([f"{len(found)} mechanisms: {names}.", *(line for m in found for line in _entry(m))])


#: Mechanisms whose switch has another name.
_SWITCH_OF = {"graph": "dispatch", "overlap": "transfer"}


def _entry(mechanism: Mechanism) -> Iterator[str]:
    yield f"\n## {mechanism.name}\n"
    yield f"**{mechanism.question}**\n"
    about = _about(mechanism.name)
    if about:
        yield about + "\n"
    backends = list(dict.fromkeys(b for listed in mechanism.variants.values() for b in listed))
    yield f"| variant | {' | '.join(backends)} | |"
    yield "|---" * (len(backends) + 2) + "|"
    order = sorted(mechanism.variants, key=lambda v: (v != mechanism.standard, v != mechanism.flash))
    for variant in order:
        runs = ["yes" if backend in mechanism.variants[variant] else "" for backend in backends]
        yield f"| `{variant}` | {' | '.join(runs)} | {_role(mechanism, variant)} |"
    yield f"\nTypes: {', '.join(mechanism.dtypes)}. Alone: `pytest bench/ -k {mechanism.name}`."
    switch = SWITCHES.get(_SWITCH_OF.get(mechanism.name, mechanism.name))
    if switch is not None:
        levels = ", ".join(f"`{level}`" for level in switch.levels)
        yield f"In the pipeline: the switch `{switch.name}`, {levels}."
    if mechanism.claims:
        yield f"Claims of the source documents: {', '.join(mechanism.claims)}."


def _role(mechanism: Mechanism, variant: str) -> str:
    roles = [("standard", variant == mechanism.standard), ("flash", variant == mechanism.flash)]
    said = [role for role, holds in roles if holds]
    if variant in mechanism.stand_in:
        said.append(f"on a CPU a stand-in for {mechanism.stand_in[variant]}")
    return "; ".join(said)


def _about(name: str) -> str:
    """The definition's docstring after its first line."""
    module = importlib.import_module(f"{PACKAGE}.{name}")
    text = inspect.cleandoc(module.__doc__ or "")
    return text.partition("\n")[2].strip().replace("``", "`")
