"""The parent's side: worker processes started afresh, asked one at a time, and never left behind."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from types import TracebackType
from typing import IO, Any

from flashperf.errors import EXIT_FAILED, UserError


class WorkerError(RuntimeError):
    """A worker died, stopped answering or failed; the message ends with what it last said."""


class NoAnswerError(WorkerError):
    """A worker gave no answer within its time: a call hangs, or is slower than was allowed for."""


class SubjectError(WorkerError):
    """What a worker was asked to do failed; the worker lives and can be asked again."""


class Worker:
    """One worker process. ``ask`` waits for the answer; ``send`` and ``receive`` let several start together."""

    def __init__(self, number: int, environment: Mapping[str, str] | None = None) -> None:
        self.number = number
        try:
            self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by stop
            self._process = subprocess.Popen(
                [sys.executable, "-m", "flashperf.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                env={**os.environ, **_ONE_THREAD, **(environment or {})},
                start_new_session=True,  # Ctrl-C is the parent's to handle
            )
        except OSError as error:
            raise UserError(f"can't start worker process {number}: {error}", EXIT_FAILED) from error
        self._pending = b""
        self._said_bytes = 0  # of its standard error, up to its last answer

    @property
    def pid(self) -> int:
        """The process, as the system numbers it."""
        return self._process.pid

    def send(self, command: str, **arguments: Any) -> None:
        """Send a command without waiting."""
        line = json.dumps({"command": command, "arguments": arguments}).encode() + b"\n"
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(line)
            self._process.stdin.flush()
        except OSError:
            raise self._died() from None

    def receive(self, timeout_s: float = 300.0) -> Any:
        """The answer to the oldest command. Raises WorkerError if the worker died, failed or ran into the limit."""
        line = self._read_line(timeout_s)
        reply = json.loads(line)
        self._said_bytes = reply["said_bytes"]
        if reply["ok"]:
            return reply["answer"]
        if reply.get("user_error"):
            raise UserError(reply["error"])
        raise SubjectError(f"worker {self.number} failed: {reply['error']}")

    def ask(self, command: str, timeout_s: float = 300.0, **arguments: Any) -> Any:
        """``send`` and ``receive``."""
        self.send(command, **arguments)
        return self.receive(timeout_s)

    def call(self, method: str, timeout_s: float = 300.0, **arguments: Any) -> Any:
        """Call a method of the worker's subject."""
        return self.ask("call", timeout_s, method=method, arguments=arguments)

    def dismiss(self) -> None:
        """Tell the process to end, and don't wait for it."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def stop(self) -> None:
        """End the process, kindly first."""
        self.dismiss()
        try:
            self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._stderr.close()

    def _read_line(self, timeout_s: float) -> bytes:
        assert self._process.stdout is not None
        file = self._process.stdout.fileno()
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._pending:
            ready, _, _ = select.select([file], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise NoAnswerError(f"worker {self.number} gave no answer within {timeout_s:.0f} s")
            chunk = os.read(file, 1 << 16)
            if not chunk:
                raise self._died()
            self._pending += chunk
        line, _, self._pending = self._pending.partition(b"\n")
        return line

    def _died(self) -> WorkerError:
        try:
            code: int | None = self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            code = None
        self._stderr.seek(self._said_bytes)
        said = self._stderr.read().decode(errors="replace").strip().splitlines()
        how = "closed its output" if code is None else f"ended with code {code}"
        if code is not None and code < 0:
            how = f"was ended by signal {-code}"
        return WorkerError(f"worker {self.number} {how}: {said[-1] if said else 'it said nothing'}")


#: Libraries in a worker may use one thread: two on a busy two-core machine jump by milliseconds.
_ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"
)


class WorkerPool:
    """Workers with the same subject. A context manager: leaving it ends every process."""

    def __init__(
        self,
        count: int,
        subject: str,
        options: Mapping[str, Any],
        standard: Mapping[str, str],
        flash: Mapping[str, str],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.workers: list[Worker] = []
        try:
            for number in range(count):
                self.workers.append(Worker(number, environment))
        except BaseException:
            self.close()
            raise
        self.start_s: list[float] = []
        self._start = {
            "subject": subject,
            "options": dict(options),
            "standard": dict(standard),
            "flash": dict(flash),
        }

    def __enter__(self) -> WorkerPool:
        try:
            for worker in self.workers:
                worker.send("start", **self._start)
            self.start_s = [worker.receive()["start_s"] for worker in self.workers]
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every worker, all at once."""
        for worker in self.workers:
            worker.dismiss()
        for worker in self.workers:
            worker.stop()
