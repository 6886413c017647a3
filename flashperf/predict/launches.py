"""Which kernels each CUDA case launches, with which geometry: read from the launch tables, nothing is run."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path

import flashperf
from flashperf import registry
from flashperf.cuda.launcher import EmulatedCall
from flashperf.dtypes import aligned_empty
from flashperf.emulator_build import cache_folder
from flashperf.records import Case, Mechanism

_MOST_BYTES = 40 << 20  # cases that touch more are left out: their arrays would have to be made


@dataclass(frozen=True)
class KernelLaunch:
    """One launch of a case: the stem of the ``.cu`` file, the kernel, blocks of the grid, threads and dynamic shared
    bytes of a block."""

    stem: str
    kernel: str
    blocks: int
    threads: int
    shared_bytes: int


Launches = dict[str, list[KernelLaunch]]


def _cases(mechanism: Mechanism) -> Iterator[Case]:
    """Cases of every size, for CPUs and for GPUs: what a block looks like may depend on it."""
    sizes = (*mechanism.test_sizes, *mechanism.bench_sizes, *mechanism.gpu_bench_sizes[:1])
    for variant, backends in mechanism.variants.items():
        if "cuda" in backends:
            for dtype in mechanism.dtypes:
                yield from (Case.of(mechanism.name, variant, "cuda", dtype, size) for size in sizes)


def _read(mechanism: Mechanism) -> Launches:
    found: Launches = {}
    for case in _cases(mechanism):
        if mechanism.supports(case) or mechanism.cost(case).bytes > _MOST_BYTES:
            continue
        outputs = {n: aligned_empty(s.shape, s.dtype) for n, s in mechanism.outputs(case).items()}
        call = mechanism.bind["cuda"](case, mechanism.make_inputs(case), outputs)
        if isinstance(call, EmulatedCall):
            found[case.id] = [
                KernelLaunch(call.mechanism, x.kernel, prod(x.grid), prod(x.block), x.shared_bytes)
                for x in call.launches
            ]
    return found


def _key(name: str) -> str:
    """A hash of every Python file that launches may depend on."""
    package = Path(flashperf.__file__).parent
    files = [*package.glob("*.py"), *package.glob("cuda/*.py"), *package.glob("mechanisms/*.py")]
    digest = hashlib.sha256(name.encode())
    for path in sorted(files):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:20]


def launches(name: str) -> Launches:
    """Case id -> its launches, for the CUDA cases of a mechanism that touch at most 40 MiB; kept by content.

    Empty for a mechanism without CUDA kernels. On a machine with a GPU too: nothing there is used.
    """
    mechanism = registry.mechanism(name)
    if "cuda" not in mechanism.bind:
        return {}
    kept = cache_folder().parent / "launches" / f"{name}-{_key(name)}.json"
    if kept.exists():
        rows = json.loads(kept.read_text())
        return {case: [KernelLaunch(**row) for row in several] for case, several in rows.items()}
    found = _read(mechanism)
    kept.parent.mkdir(parents=True, exist_ok=True)
    partial = kept.with_suffix(f".{os.getpid()}.part")
    partial.write_text(json.dumps({case: [asdict(one) for one in rows] for case, rows in found.items()}))
    partial.replace(kept)
    return found


def largest(found: Launches) -> dict[tuple[str, str], KernelLaunch]:
    """(stem, kernel) -> its launch with the largest block: most threads, then most shared memory, then blocks."""
    best: dict[tuple[str, str], KernelLaunch] = {}
    for rows in found.values():
        for one in rows:
            key = one.stem, one.kernel
            if key not in best or _size(one) > _size(best[key]):
                best[key] = one
    return best


def _size(launch: KernelLaunch) -> tuple[int, int, int]:
    return launch.threads, launch.shared_bytes, launch.blocks
