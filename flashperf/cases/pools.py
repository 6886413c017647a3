"""Worker processes for cases, kept from one case to the next while both want the same environment and threads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flashperf.cases.definition import OpenCase
from flashperf.workers import Worker

WORKERS = 6  # the least that an interval should rest on; starting torch in each takes most of the time
_SUBJECT = "flashperf.cases.subject:CaseSubject"


class Pools:
    """Worker processes, kept from one case to the next while both want the same environment and threads."""

    def __init__(self, seed: int) -> None:
        self._seed, self._workers, self._key = seed, list[Worker](), ("", 0)

    def of(self, case: OpenCase) -> list[Worker]:
        """WORKERS processes that hold nothing of another case."""
        key = (repr(sorted(case.environment.items())), case.threads)
        if not self._workers or key != self._key:
            self.close()
            self._workers, self._key = start_workers(case, WORKERS, self._seed), key
        for worker in self._workers:
            worker.call("forget")
        return self._workers

    def close(self) -> None:
        """End them all."""
        for worker in self._workers:
            worker.stop()
        self._workers = []


def start_workers(case: OpenCase, count: int, seed: int) -> list[Worker]:
    """Fresh processes for a case, with its environment; none is left behind if one does not start."""
    variables: Mapping[str, str] = {"KINETO_LOG_LEVEL": "5", **case.environment}
    workers: list[Worker] = []
    try:
        for number in range(count):
            workers.append(Worker(number, variables))
            options: dict[str, Any] = {"seed": seed + number, "threads": case.threads}
            workers[-1].send("start", subject=_SUBJECT, options=options, standard={}, flash={})
        for worker in workers:
            worker.receive()
    except BaseException:
        for worker in workers:
            worker.stop()
        raise
    return workers
