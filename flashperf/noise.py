"""Recorded noise of a real machine, replayed into simulations: how calls of one process drift and jump.

Gaussian noise flatters every method: real calls of 20-35 ms are autocorrelated, switch between levels for
seconds and have a tail. ``record`` measures such calls on the machine in use; ``Noise`` replays them.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

DATA = Path(__file__).parent / "data" / "noise.npz"
SEGMENTS = 6
CALL_S = 0.027  # the length of one recorded call: in the range of the pipeline's


@dataclass(frozen=True)
class Noise:
    """log(time / median of its segment) of consecutive calls, shape (n,), process after process."""

    log_series: np.ndarray
    about: str

    def replay(self, calls: int, rng: np.random.Generator) -> np.ndarray:
        """``calls`` consecutive values from a random start, around the end if need be."""
        start = int(rng.integers(self.log_series.size))
        return self.log_series[(start + np.arange(calls)) % self.log_series.size]

    @property
    def sd(self) -> float:
        """Standard deviation in log units."""
        return float(self.log_series.std())

    @property
    def lag1(self) -> float:
        """Correlation of neighbouring calls."""
        return float(np.corrcoef(self.log_series[:-1], self.log_series[1:])[0, 1])

    @property
    def neighbour_sd(self) -> float:
        """Standard deviation of the difference of neighbouring calls in log units: what pairing leaves."""
        return float(np.diff(self.log_series).std())


def load_noise(path: Path = DATA) -> Noise:
    """The recorded noise. Raises ValueError, with the command that records it, if it can't be read."""
    try:
        with np.load(path) as data:
            segments = [data[name].astype(np.float64) for name in sorted(data) if name.startswith("segment")]
            about = str(data["about"])
    except (OSError, KeyError, ValueError) as error:
        raise ValueError(
            f"no recorded noise in {path.name} ({error}); "
            f"record it: python -m flashperf.selfcheck --record-noise 60"
        ) from error
    if not segments or not all(np.isfinite(segment).all() for segment in segments):
        raise ValueError(f"{path.name} holds no finite noise; record it anew")
    return Noise(np.concatenate(segments), about)


def workload(seed: int) -> Callable[[], None]:
    """A NumPy call like the pipeline's: matrix products of a few rows, a softmax and a pass over 4 MB."""
    rng = np.random.default_rng(seed)
    weights = [rng.standard_normal((256, 1024)).astype(np.float32) for _ in range(4)]
    x = rng.standard_normal((32, 256)).astype(np.float32)
    stream = rng.standard_normal(1 << 20).astype(np.float32)

    def once() -> None:
        for weight in weights:
            scores = x @ weight
            scores -= scores.max(axis=1, keepdims=True)
            np.exp(scores, out=scores)
            scores /= scores.sum(axis=1, keepdims=True)
        np.multiply(stream, np.float32(1.0), out=stream)

    once()
    start = time.perf_counter()
    for _ in range(5):
        once()
    repeats = max(1, round(CALL_S / ((time.perf_counter() - start) / 5)))

    def call() -> None:
        for _ in range(repeats):
            once()

    return call


def record_segment(seconds: float, seed: int) -> list[float]:
    """Times of consecutive calls in this process, in seconds: at least three, the first three left out."""
    call = workload(seed)
    times: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 6:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return times[3:]


def single_threaded() -> dict[str, str]:
    """The environment of a process whose NumPy is to use one thread."""
    return {**os.environ, **{f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")}}


def record(seconds: float, path: Path = DATA, segments: int = SEGMENTS) -> Noise:
    """Record ``segments`` fresh single-threaded processes, one after another, and save them as float32.

    Raises ValueError if ``seconds`` leaves under a second for each.
    """
    if seconds < segments:
        raise ValueError(f"{segments} segments need at least {segments} s, not {seconds}")
    arrays: dict[str, np.ndarray] = {}
    load_before = os.getloadavg()[0]
    for n in range(segments):
        command = [sys.executable, "-m", "flashperf.noise", str(seconds / segments), str(n)]
        output = subprocess.run(command, env=single_threaded(), check=True, capture_output=True, text=True)
        times = np.array(json.loads(output.stdout))
        arrays[f"segment_{n}"] = np.log(times / np.median(times)).astype(np.float32)
    calls = sum(array.size for array in arrays.values())
    about = (
        f"{calls} calls of {CALL_S * 1e3:.0f} ms in {segments} processes, {os.cpu_count()} cores "
        f"({platform.machine()}), load {load_before:.1f} before and {os.getloadavg()[0]:.1f} after"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays["about"] = np.array(about)
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return load_noise(path)


if __name__ == "__main__":
    print(json.dumps(record_segment(float(sys.argv[1]), int(sys.argv[2]))))
