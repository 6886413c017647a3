"""Compiles a ``.cu`` file for an architecture and reads its kernels; both are kept by the hash of the content."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from flashperf.emulator_build import cache_folder
from flashperf.errors import UserError
from flashperf.machine_code.kernel import KernelCode, read_cubin
from flashperf.machine_code.toolchain import tool, version
from flashperf.suggest import unknown_name

#: What the kernels are compiled for: A100; L4 and RTX 4090; H100 and H200; B200.
ARCHITECTURES = ("sm_80", "sm_89", "sm_90a", "sm_100")
_FLAGS = ("-std=c++17", "-cubin", "-Xptxas", "-v")
_ERROR = re.compile(r"^(.*?)\((\d+)\): (?:error|catastrophic error)[^:]*: (.*)$", re.MULTILINE)


class CompileError(UserError):
    """nvcc refused a file; the message is its first error, with file and line."""


def first_error(output: str) -> str:
    """``file.cu:12: message`` from what nvcc printed, or its first line."""
    match = _ERROR.search(output)
    if match:
        file, line, message = match.groups()
        return f"{Path(file).name}:{line}: {message}"
    lines = [line for line in output.splitlines() if line.strip()]
    told = next((line for line in lines if "error" in line or "fatal" in line), lines[0] if lines else "")
    return told.strip() or "nvcc failed without a message"


def _key(source: Path, flags: Sequence[str]) -> str:
    """A hash of the file, of every header beside it, of the tools, and of this package that reads what they made."""
    digest = hashlib.sha256()
    headers = [path for kind in ("*.cuh", "*.h") for path in sorted(source.parent.glob(kind))]
    for path in (source, *headers, *sorted(Path(__file__).parent.glob("*.py"))):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    for text in (*flags, version("nvcc"), version("nvdisasm")):
        digest.update(b"\0" + text.encode())
    return digest.hexdigest()[:20]


def check_architecture(architecture: str) -> None:
    """Raise UserError, with the valid names, for an architecture that kernels are not compiled for."""
    if architecture not in ARCHITECTURES:
        raise UserError(unknown_name("architecture", architecture, ARCHITECTURES))


def compile_kernels(
    source: Path | str, architecture: str, defines: Sequence[str] = ()
) -> dict[str, KernelCode]:
    """The kernels of a ``.cu`` file as compiled for one of ARCHITECTURES, by name.

    Raises UserError for an unknown architecture or missing tools, CompileError with the compiler's first error.
    """
    check_architecture(architecture)
    nvcc, *_ = (tool(name) for name in ("nvcc", "nvdisasm", "cuobjdump"))
    source = Path(source)
    flags = [*_FLAGS, f"-arch={architecture}", *(f"-D{define}" for define in defines)]
    kept = cache_folder().parent / "machine_code" / f"{source.stem}-{architecture}-{_key(source, flags)}.json"
    if kept.exists():
        return {name: KernelCode(**fields) for name, fields in json.loads(kept.read_text()).items()}
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder) / "kernels.cubin"
        command = [str(nvcc), *flags, str(source), "-o", str(cubin)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise CompileError(f"{source.name} does not compile: {first_error(done.stderr or done.stdout)}")
        kernels = read_cubin(cubin, done.stdout + done.stderr)
    kept.parent.mkdir(parents=True, exist_ok=True)
    partial = kept.with_suffix(f".{os.getpid()}.part")
    partial.write_text(json.dumps({name: asdict(kernel) for name, kernel in kernels.items()}, indent=1))
    partial.replace(kept)
    return kernels


@contextmanager
def two_at_a_time() -> Iterator[ThreadPoolExecutor]:
    """A pool that compiles two files at a time. After an error or Ctrl-C inside, what has not begun is dropped."""
    with ThreadPoolExecutor(2) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
