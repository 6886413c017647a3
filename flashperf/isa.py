"""Instruction-set levels of the CPU kernels: what each needs and how it is compiled. Imports nothing heavy."""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Level:
    """A level of kernels: flags of /proc/cpuinfo that it needs, compiler flags; both beyond the level before."""

    name: str
    needs: tuple[str, ...]
    compile: tuple[str, ...]


_X86 = (
    Level("avx2", ("avx2", "fma", "f16c"), ("-mavx2", "-mfma", "-mf16c")),
    Level(
        "avx512",
        ("avx512f", "avx512bw", "avx512dq", "avx512vl"),
        ("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mprefer-vector-width=512"),
    ),
    Level("avx512_vnni", ("avx512_vnni",), ("-mavx512vnni",)),
    Level("avx512_bf16", ("avx512_bf16",), ("-mavx512bf16",)),
    Level("amx", ("amx_tile", "amx_bf16", "amx_int8"), ("-mamx-tile", "-mamx-bf16", "-mamx-int8")),
)


def known_levels(machine: str | None = None) -> tuple[Level, ...]:
    """Levels of a processor family (default: this one's), weakest first; each includes those before it."""
    family = machine or platform.machine()
    return (Level("portable", (), ()), *(_X86 if family in ("x86_64", "AMD64") else ()))


def cpu_flags() -> frozenset[str]:
    """The CPU's feature flags as Linux reports them; empty where /proc/cpuinfo has none (other processors)."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return frozenset()
    match = re.search(r"^flags\s*:\s*(.*)$", text, re.MULTILINE)
    return frozenset(match.group(1).split()) if match else frozenset()


def runnable_levels() -> tuple[str, ...]:
    """Names of the levels whose flags this CPU has, weakest first."""
    flags, names = cpu_flags(), []
    for level in known_levels():
        if not flags.issuperset(level.needs):
            break
        names.append(level.name)
    return tuple(names)
