"""The worker side of a measurement: a fresh process that holds one subject and runs what it is told to.

    python -m flashperf.worker

Commands come as JSON lines on standard input and each gets one JSON line back. What the subject prints goes to
standard error: standard output belongs to the protocol. A worker imports NumPy, the kernels and its subject.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from flashperf.disturbance import Disturbance, SystemProbe
from flashperf.errors import UserError

Levels = Mapping[str, str]
_PR_SET_PDEATHSIG = 1
MAX_REPEATS = 2  # tries that a disturbed group gets beyond its first
#: Repeats over all groups, as a fraction of them: where every call is stolen from, repeating only costs time.
REPEATED_FRACTION = 0.25
#: Involuntary context switches in one call that count as evidence that it was stolen from: a kernel thread that
#: runs for some microseconds causes one or two in any call of some tens of milliseconds.
STOLEN_SWITCHES = 3


class Subject(Protocol):
    """What a worker measures: anything that runs under a mixture of switches."""

    def rebuild(self, seed: int) -> None:
        """Forget every buffer; the next ``prepare`` allocates anew, so that placement averages out."""

    def prepare(self, levels: Levels) -> None:
        """Bind, check and warm up one mixture; not timed. Raises if its result is wrong."""

    def run(self, levels: Levels) -> dict[str, float]:
        """Run one prepared mixture; named times in seconds, ``seconds`` first among them."""


class WorkerProcess:
    """Executes commands on a subject."""

    def __init__(self, subject: Subject, levels_of: Sequence[Levels]) -> None:
        self.subject = subject
        self._probe = SystemProbe()
        self._groups = self._repeats = 0
        self.standard, self.flash = levels_of
        self.active: list[str] = [name for name in self.flash if self.flash[name] != self.standard.get(name)]

    def levels(self, mask: int) -> dict[str, str]:
        """The mixture in which the active switches whose bits are set stand at flash."""
        flipped = {name: self.flash[name] for i, name in enumerate(self.active) if mask >> i & 1}
        return {**self.standard, **flipped}

    def set_active(self, names: list[str]) -> None:
        """Fix the order of the switches that a mask's bits stand for."""
        self.active = names

    def rebuild(self, seed: int) -> None:
        """Fresh weights and buffers."""
        self.subject.rebuild(seed)
        gc.collect()

    def group(self, masks: list[int], lead_in: bool) -> dict[str, Any]:
        """Run the mixtures back to back. A group that was stolen from is repeated, on that evidence alone."""
        for mask in dict.fromkeys(masks):
            self.subject.prepare(self.levels(mask))
        if lead_in:
            self.subject.run(self.levels(masks[0]))
        self._groups += 1
        repeats = 0
        while True:
            runs = [self._timed(self.levels(mask)) for mask in masks]
            stolen = sum(run["stolen"] for run in runs)
            if not stolen or repeats == MAX_REPEATS or self._repeats >= 2 + REPEATED_FRACTION * self._groups:
                return {"runs": runs, "repeats": repeats, "stolen": stolen}
            repeats += 1
            self._repeats += 1

    def _timed(self, levels: Levels) -> dict[str, float]:
        before = self._probe.read()
        cpu = time.process_time()
        run = self.subject.run(levels)
        run["cpu_s"] = time.process_time() - cpu
        run["stolen"] = int(was_stolen_from(self._probe.read() - before))
        return run

    def call(self, method: str, arguments: dict[str, Any]) -> Any:
        """A method of the subject beyond the protocol (profile, isolated times, quality)."""
        if "mask" in arguments:
            arguments["levels"] = self.levels(arguments.pop("mask"))
        if "masks" in arguments:
            arguments["mixtures"] = [self.levels(mask) for mask in arguments.pop("masks")]
        return getattr(self.subject, method)(**arguments)


def was_stolen_from(disturbance: Disturbance) -> bool:
    """Whether a call must be repeated, on evidence and never on its time."""
    involuntary = disturbance.involuntary >= STOLEN_SWITCHES
    return involuntary or disturbance.steal_ticks > 0 or disturbance.throttled > 0


def load_subject(target: str, arguments: dict[str, Any]) -> Subject:
    """``module:Class`` called with ``arguments``."""
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)(**arguments)


def die_with_parent() -> None:
    """Have the kernel end this process when its parent is gone (Linux, man 2 prctl), whatever it is doing."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    """Serve commands until standard input closes."""
    die_with_parent()
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    process: WorkerProcess | None = None
    for line in sys.stdin:
        request = json.loads(line)
        command, arguments = request["command"], request["arguments"]
        try:
            if command == "start":
                begin = time.perf_counter()
                subject = load_subject(arguments["subject"], arguments["options"])
                process = WorkerProcess(subject, (arguments["standard"], arguments["flash"]))
                gc.collect()
                gc.freeze()
                gc.disable()
                answer: Any = {"start_s": time.perf_counter() - begin, "pid": os.getpid()}
            elif process is None:
                raise RuntimeError("the first command must be start")
            elif command == "call":
                answer = process.call(arguments["method"], arguments["arguments"])
            else:
                answer = getattr(process, command)(**arguments)
            reply = {"ok": True, "answer": answer}
        except UserError as error:
            reply = {"ok": False, "user_error": True, "error": str(error)}
        except Exception as error:
            traceback.print_exc()
            reply = {"ok": False, "user_error": False, "error": f"{type(error).__name__}: {error}"}
        sys.stderr.flush()
        print(json.dumps({**reply, "said_bytes": os.fstat(2).st_size}), file=out)


if __name__ == "__main__":
    main()
