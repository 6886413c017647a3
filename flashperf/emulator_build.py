"""Builds a CUDA ``.cu`` file with g++ on top of ``csrc/emulator``: no CUDA toolkit is needed.

The source is preprocessed, its kernels are found, dynamic shared arrays become pointers, and the result is
compiled and linked with the emulator. Everything is cached by the hash of what it was made from.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from flashperf.errors import UserError
from flashperf.suggest import unknown_name

_FLAGS = ["-std=c++17", "-fPIC", "-fvisibility=hidden", "-fno-strict-aliasing", "-ffp-contract=off", "-w"]
SANITIZERS = {
    "address": ["-fsanitize=address", "-fno-omit-frame-pointer"],
    "undefined": ["-fsanitize=bounds,alignment", "-fno-sanitize-recover=all"],
    "thread": ["-fsanitize=thread"],
}
_ALIGNMENT = r"(?:(?:alignas\s*\(\s*\d+\s*\)|__attribute__\s*\(\(aligned\(\d+\)\)\))\s*)?"
_SHARED = re.compile(rf"(extern\s+)?__shared__\s+({_ALIGNMENT})([^;]+);")
_DECLARATOR = re.compile(rf"(.*?)\s*({_ALIGNMENT})(\w+)\s*((?:\[.*\])?)", re.DOTALL)
_BOUNDS = r"(?:__launch_bounds__\s*\(((?:[^()]|\([^()]*\))*)\)\s*)?"
_ERROR = re.compile(r"^([^:\n]+):(\d+):(?:\d+:)? (?:fatal )?error: (.*)$", re.MULTILINE)
_KERNEL = re.compile(rf"__global__\s+{_BOUNDS}void\s+{_BOUNDS}(\w+)\s*\(")


#: As -fsanitize=thread instruments it, without what would split 16-byte accesses or give lanes code of their own.
_TRACED = ["-O1", "-fsanitize=thread", "-fno-tree-sra", "-fno-tree-fre", "-fno-tree-pre", "-fno-thread-jumps"]


class BuildError(UserError):
    """g++ is missing or refused a kernel file; the message is its first error, with file and line."""


def source_folder() -> Path:
    """``csrc`` of the checkout, or the copy inside an installed package."""
    package = Path(__file__).parent
    for folder in (package.parent / "csrc", package / "csrc"):
        if (folder / "emulator" / "emulator.h").exists():
            return folder
    raise FileNotFoundError(f"no csrc/emulator beside or inside {package}")


def cache_folder() -> Path:
    """``build/emulator`` of a checkout; for an installed package the user's cache."""
    root = source_folder().parent
    if (root / "setup.py").exists() and os.access(root, os.W_OK):
        return root / "build" / "emulator"
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "flashperf" / "emulator"


@cache
def _compiler() -> tuple[str, str]:
    """The compiler and its version line."""
    name = os.environ.get("FLASHPERF_GXX", "g++")
    if not shutil.which(name):
        raise BuildError(f"the CUDA emulator needs g++, and {name} is not on the PATH")
    return name, subprocess.run([name, "--version"], capture_output=True, text=True).stdout.splitlines()[0]


def _run(command: list[str]) -> str:
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        found = _ERROR.search(result.stderr)
        told = f"{Path(found[1]).name}:{found[2]}: {found[3]}" if found else f"{command}\n{result.stderr}"
        raise BuildError(f"the emulator's build fails: {told}")
    return result.stdout


def _key(*parts: str) -> str:
    return hashlib.sha256("\0".join((*parts, _compiler()[1], os.uname().machine)).encode()).hexdigest()[:20]


def _build_once(target: Path, command: list[str]) -> Path:
    """Run ``command -o target`` unless the target is there; two processes may do so at the same time."""
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            partial = Path(folder) / target.name
            _run([*command, "-o", str(partial)])
            partial.replace(target)
    return target


def _check_sanitizers(sanitizers: Sequence[str]) -> None:
    for name in sanitizers:
        if name not in SANITIZERS:
            raise ValueError(unknown_name("sanitizer", name, SANITIZERS))


@cache
def _runtime_objects(sanitizers: tuple[str, ...], traced: bool) -> list[Path]:
    """The emulator itself. Only AddressSanitizer instruments it: the others are to see the kernel alone."""
    folder = source_folder() / "emulator"
    headers = "".join(p.read_text() for p in sorted(folder.glob("*.h")))
    # Without loops turned into calls of memcpy: the sanitizers would look at those.
    flags = [*_FLAGS, "-O2", "-g1", "-fno-tree-loop-distribute-patterns"]
    if "address" in sanitizers:
        flags += [*SANITIZERS["address"], "-DFLASHPERF_ASAN"]
    if "thread" in sanitizers:
        flags += ["-DFLASHPERF_TSAN"]
    if traced:
        flags += ["-DFLASHPERF_TRACE"]
    flags += os.environ.get("FLASHPERF_EMULATOR_FLAGS", "").split()
    objects = []
    for source in sorted(folder.glob("*.cpp")):
        name = f"{source.stem}-{_key(headers, source.read_text(), *flags)}.o"
        command = [_compiler()[0], *flags, "-c", str(source)]
        objects.append(_build_once(cache_folder() / "runtime" / name, command))
    return objects


def _split(text: str) -> list[str]:
    """Split a list of declarators at the commas outside all brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([<{") - (character in ")]>}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def _shared_declaration(match: re.Match[str]) -> str:
    """One ``__shared__`` declaration as C++: see csrc/emulator/shared.h."""
    is_extern, alignment, declaration = match.groups()
    kind, lines = "", []
    for part in _split(declaration):
        declarator = _DECLARATOR.fullmatch(part)
        if not declarator:
            raise BuildError(f"cannot read the declaration __shared__ {declaration};")
        own_kind, own_alignment, name, dims = declarator.groups()
        kind = own_kind or kind  # `float a[2], b[2];`: the type is written once
        if is_extern:
            lines.append(f"{kind}* {name} = static_cast<{kind}*>(::flashperf::emulator::dynamic_shared());")
        else:
            storage = f"::flashperf::emulator::Shared<{kind}{dims}> {name}_storage"
            lines.append(
                f"static {alignment or own_alignment} {storage}; auto& {name} = {name}_storage.value;"
            )
    return " ".join(lines)


def _translate(source: Path, defines: Sequence[str]) -> str:
    """The preprocessed source as C++: dynamic shared arrays become pointers, kernels are published."""
    folder = source_folder() / "emulator"
    includes = ["-I", str(folder / "include"), "-I", str(folder)]
    macros = [f"-D{define}" for define in defines]
    command = [_compiler()[0], "-E", "-std=c++17", "-x", "c++", *includes, "-include", "emulator.h", *macros]
    text = _run([*command, str(source)])
    text = _SHARED.sub(_shared_declaration, text)
    kernels = {m.group(3): m.group(1) or m.group(2) or "" for m in _KERNEL.finditer(text)}
    published = "".join(f"FLASHPERF_PUBLISH({name}, {bounds})\n" for name, bounds in kernels.items())
    return f'#include "{folder / "qualifiers.h"}"\n{text}\n{published}'


def build(
    source: Path | str,
    *,
    sanitizers: Sequence[str] = (),
    defines: Sequence[str] = (),
    program: bool = False,
    traced: bool = False,
) -> Path:
    """Compile a kernel file to a shared library, or with ``program`` to an executable that replays launches.

    ``traced``: every access to memory calls csrc/emulator/trace_hooks.cpp; not together with sanitizers.
    The result is cached by the hash of the preprocessed source, so that a change of any header is seen.
    Raises BuildError with the compiler's first error.
    """
    _check_sanitizers(sanitizers)
    source, compiler = Path(source), _compiler()[0]
    special = [*(["FLASHPERF_SANITIZED"] if sanitizers else []), *(["FLASHPERF_TRACE"] if traced else [])]
    translated = _translate(source, [*defines, *special])
    # Code of one thread has little to vectorise, and GCC 12 for aarch64 fails on some of it.
    flags = [*_FLAGS, "-O1" if sanitizers else "-O2", "-fno-tree-vectorize", "-g1"]
    flags += [flag for name in sanitizers for flag in SANITIZERS[name]]
    runtime = _runtime_objects(tuple(sanitizers), traced)
    objects = [p for p in runtime if program or not p.name.startswith("replay-")]
    key = _key(translated, str(program), *flags, *(_TRACED if traced else ()), *(p.name for p in objects))
    folder = cache_folder() / "-".join(["kernels", *sanitizers, *(["traced"] if traced else [])])
    target = folder / f"{source.stem}-{key}{'' if program else '.so'}"
    if target.exists():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        generated, compiled = Path(scratch) / f"{source.stem}.cpp", Path(scratch) / f"{source.stem}.o"
        generated.write_text(translated)
        instrumented = [*flags, *_TRACED] if traced else flags
        _run([compiler, *instrumented, "-c", str(generated), "-o", str(compiled)])
        kind = [] if program else ["-shared", "-Wl,-Bsymbolic"]
        return _build_once(target, [compiler, *kind, *flags, str(compiled), *map(str, objects)])
