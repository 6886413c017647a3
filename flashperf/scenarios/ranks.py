"""Processes that work together: started, watched, and all ended as soon as one fails or time is up.

Under torchrun this module isn't needed: the ranks are there, and ``parallel_worker`` runs in each.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from flashperf.workers import WorkerError

_POLL_S = 0.02


def run_ranks(
    module: str,
    world: int,
    options: Mapping[str, Any],
    timeout_s: float,
    environment: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:
    """``python -m module`` as ``world`` ranks; what rank 0 printed, a JSON line each.

    Each rank gets RANK, WORLD_SIZE, FLASHPERF_RENDEZVOUS (a file that torch.distributed meets at) and the options
    as JSON in FLASHPERF_OPTIONS. Raises WorkerError, with what it last said, if a rank fails, dies or none
    has an answer after ``timeout_s``; no rank is left behind.
    """
    with tempfile.TemporaryDirectory(prefix="flashperf-ranks-") as folder, contextlib.ExitStack() as files:
        shared = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            "WORLD_SIZE": str(world),
            "FLASHPERF_RENDEZVOUS": str(Path(folder) / "meeting"),
            "FLASHPERF_OPTIONS": json.dumps(dict(options)),
            **(environment or {}),
        }
        outputs = [files.enter_context(tempfile.TemporaryFile()) for _ in range(world)]
        errors = [files.enter_context(tempfile.TemporaryFile()) for _ in range(world)]
        ranks = [_start(module, rank, shared, outputs[rank], errors[rank]) for rank in range(world)]
        try:
            _wait(ranks, errors, timeout_s)
        finally:
            for process in ranks:
                if process.poll() is None:
                    process.kill()
                process.wait()
        outputs[0].seek(0)
        return [json.loads(line) for line in outputs[0].read().decode().splitlines() if line.startswith("{")]


def _start(
    module: str, rank: int, shared: Mapping[str, str], output: IO[bytes], errors: IO[bytes]
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", module],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=errors,
        env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        start_new_session=True,
    )


def _wait(ranks: Sequence[subprocess.Popen[bytes]], errors: Sequence[IO[bytes]], timeout_s: float) -> None:
    """Until all have ended well. The first that did not is named."""
    deadline = time.monotonic() + timeout_s
    while True:
        codes = [process.poll() for process in ranks]
        for rank, code in enumerate(codes):
            if code:
                how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
                raise WorkerError(f"rank {rank} of {len(ranks)} {how}: {_last_words(errors[rank])}")
        if all(code == 0 for code in codes):
            return
        if time.monotonic() > deadline:
            waiting = [str(rank) for rank, code in enumerate(codes) if code is None]
            raise WorkerError(
                f"no answer from rank {', '.join(waiting)} within {timeout_s:g} s; all ranks were ended"
            )
        time.sleep(_POLL_S)


def _last_words(file: IO[bytes]) -> str:
    file.seek(0)
    said = [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    return said[-1].strip() if said else "it said nothing"
