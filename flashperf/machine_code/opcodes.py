"""Groups the machine instructions (SASS) of a kernel into classes that say what it is made of. Pure.

Names as the disassembler prints them; NVIDIA documents them in "CUDA Binary Utilities", "Instruction Set
Reference". Counts are of instructions in the code, not of how often they are executed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

#: Class -> what an opcode of it looks like. The first that matches holds.
CLASSES: dict[str, str] = {
    "FFMA": r"FFMA2?\b",
    "HMMA": r"HMMA\b",
    "IMMA": r"IMMA\b",
    "QMMA": r"QMMA\b",
    "HGMMA": r"HGMMA\b",
    "IGMMA": r"IGMMA\b",
    "QGMMA": r"QGMMA\b",
    "UTCMMA": r"UTC\w*MMA\b",
    "DP4A": r"IDP\.4A\b",
    "HFMA2": r"HFMA2\b",
    "MUFU": r"MUFU\b",
    "LDG.128": r"LDG\b.*\.128\b",
    "LDG": r"LDG\b",
    "STG.128": r"STG\b.*\.128\b",
    "STG": r"STG\b",
    "LDGSTS.128": r"LDGSTS\b.*\.128\b",
    "LDGSTS": r"LDGSTS\b",
    "TMA": r"U(TMALDG|TMASTG|BLKCP|TMAREDG)\b",
    "LDSM": r"LDSM\b",
    "LD": r"LD\b",
    "ST": r"ST\b",
    "LDS.128": r"LDS\b.*\.128\b",
    "LDS": r"LDS\b",
    "STS.128": r"STS\b.*\.128\b",
    "STS": r"STS\b",
    "LDL": r"LDL\b",
    "STL": r"STL\b",
    "SHFL": r"SHFL\b",
    "BAR": r"BAR\b",
    "ATOM": r"(ATOM|ATOMG|ATOMS|RED|REDG)\b",
}
#: Products on Tensor Cores, of any generation.
TENSOR_CORE = ("HMMA", "IMMA", "QMMA", "HGMMA", "IGMMA", "QGMMA", "UTCMMA")
_PATTERNS = {name: re.compile(pattern) for name, pattern in CLASSES.items()}


def class_of(opcode: str) -> str:
    """``LDG.E.128.CONSTANT`` -> ``LDG.128``; "other" for what no class holds."""
    return next((name for name, pattern in _PATTERNS.items() if pattern.match(opcode)), "other")


def classify(opcodes: Iterable[str]) -> dict[str, int]:
    """How many instructions of each class, in the order of CLASSES, "other" last; classes without any are left out."""
    counted = Counter(class_of(opcode) for opcode in opcodes)
    return {name: counted[name] for name in (*CLASSES, "other") if counted[name]}
