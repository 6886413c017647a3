"""Machines, and guards: functions that say why a case can't run, or isn't to be expected, on one. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from flashperf.errors import UserError


@dataclass(frozen=True)
class Machine:
    """What guards look at. torch: its version, or empty; isa: CPU flags; cores: usable ones; cuda: a GPU is there."""

    torch: str
    isa: frozenset[str]
    cores: int
    compiler: bool
    cuda: bool
    vendor: str = ""


#: Empty where all is well, else the reason in a few words.
Guard = Callable[[Machine], str]


def torch_installed(machine: Machine) -> str:
    """torch is there."""
    return "" if machine.torch else "needs torch: pip install 'flashperf[torch]'"


def torch_at_least(*wanted: int) -> Guard:
    """A guard for a version of torch."""

    def guard(machine: Machine) -> str:
        found = tuple(int(part) for part in re.findall(r"\d+", machine.torch)[: len(wanted)])
        text = ".".join(map(str, wanted))
        return (
            "" if found >= wanted else f"needs torch {text} or newer, and this is {machine.torch or 'none'}"
        )

    return guard


def cxx_compiler(machine: Machine) -> str:
    """torch.compile generates C++ on a CPU."""
    return "" if machine.compiler else "needs a C++ compiler: torch.compile generates C++ on a CPU"


def cores_at_least(wanted: int) -> Guard:
    """A guard for usable cores."""

    def guard(machine: Machine) -> str:
        return "" if machine.cores >= wanted else f"needs {wanted} cores, and {machine.cores} can be used"

    return guard


def isa_without(*flags: str) -> Guard:
    """Expected only where the CPU lacks all of these."""

    def guard(machine: Machine) -> str:
        there = [flag for flag in flags if flag in machine.isa]
        return f"this CPU has {' and '.join(there)}" if there else ""

    return guard


def package(name: str) -> Guard:
    """A guard for an installed package, by the name that is imported."""

    def guard(_: Machine) -> str:
        import importlib.util

        return "" if importlib.util.find_spec(name) else f"needs the package {name}, which is not installed"

    return guard


def gpu(machine: Machine) -> str:
    """A CUDA device that torch sees."""
    return "" if machine.cuda else "needs a GPU"


class GuardError(UserError):
    """A guard that raised, or that gave something else than a text."""


def first_reason(guards: Iterable[Guard], machine: Machine) -> str:
    """The first objection; empty if there is none. Raises GuardError for a guard that is wrong."""
    for guard in guards:
        name = getattr(guard, "__name__", str(guard))
        try:
            reason = guard(machine)
        except Exception as error:
            raise GuardError(f"its guard {name} failed: {type(error).__name__}: {error}") from error
        if not isinstance(reason, str):
            raise GuardError(
                f"its guard {name} must return a text, empty where all is well, and gave {reason!r}"
            )
        if reason:
            return reason
    return ""


def this_machine() -> Machine:
    """The machine in use; torch is looked for, not imported."""
    import importlib.metadata
    import os
    import shutil

    from flashperf.environment import cpu_model, nvidia_driver, usable_cores
    from flashperf.isa import cpu_flags

    try:
        torch = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        torch = ""
    compiler = any(shutil.which(name) for name in (os.environ.get("CXX") or "g++", "clang++"))
    return Machine(
        torch=torch,
        isa=cpu_flags(),
        cores=usable_cores(),
        compiler=compiler,
        cuda=bool(nvidia_driver()) and "+cpu" not in torch,
        vendor=cpu_model(),
    )
