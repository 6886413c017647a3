"""Fat binaries: the CUDA kernels compiled beforehand by nvcc, and whether one still fits its source.

Standard library alone: setup.py runs this file before the package can be imported.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

#: Machine code for A100, H100 and H200, B200; sm_80's runs on other GPUs of 8.x. PTX is there for the rest.
ARCHITECTURES = ("sm_80", "sm_90a", "sm_100")
_PTX = "arch=compute_80,code=compute_80"


def folder() -> Path:
    """``flashperf/_cuda``: where the binaries of this package are, if it has any."""
    return Path(__file__).parent.parent / "_cuda"


def source_key(source: Path) -> str:
    """The hash of a ``.cu`` file and of the headers beside it."""
    files = [source, *sorted(source.parent.glob("*.cuh"))]
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()


def current(source: Path) -> Path | None:
    """The fat binary of a source, if there is one and it was made from the file as it is now."""
    binary, key = folder() / f"{source.stem}.fatbin", folder() / f"{source.stem}.key"
    if binary.exists() and key.exists() and key.read_text().split()[0] == source_key(source):
        return binary
    return None


def command(source: Path, target: Path, architectures: Sequence[str]) -> list[str]:
    """nvcc's command for one file (``NVCC`` names another nvcc)."""
    generated = [f"arch={a.replace('sm_', 'compute_')},code={a}" for a in architectures]
    flags = [part for text in (*generated, _PTX) for part in ("-gencode", text)]
    return [os.environ.get("NVCC", "nvcc"), "-std=c++17", "-fatbin", *flags, str(source), "-o", str(target)]


def build(source: Path, into: Path, architectures: Sequence[str] = ARCHITECTURES) -> str:
    """Compile a file into ``into``, unless that was done; empty, or the compiler's message.

    A binary that no longer fits its source is removed first: none is better than a stale one.
    """
    target, note = into / f"{source.stem}.fatbin", into / f"{source.stem}.key"
    key = f"{source_key(source)} {','.join(architectures)}\n"
    if target.exists() and note.exists() and note.read_text() == key:
        return ""
    into.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    partial = target.with_suffix(".part")
    done = subprocess.run(command(source, partial, architectures), capture_output=True, text=True)
    if done.returncode:
        return f"{source.name}: {done.stderr.strip()}"
    partial.replace(target)
    note.write_text(key)
    return ""
