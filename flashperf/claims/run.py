"""Measures what claims need, each source once: pairs in processes, then explanations and scenarios."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from flashperf import environment
from flashperf.claims.definition import (
    Claim,
    ExplainMetric,
    ExplainShare,
    HitRate,
    Pair,
    ScenarioTotal,
    Source,
)
from flashperf.deadline import Deadline
from flashperf.errors import UserError
from flashperf.progress import NullProgress, ProgressSink
from flashperf.records import Explanation, Interval
from flashperf.store import RecordError, RecordWriter, read_records
from flashperf.workers import Worker, WorkerError

WORKERS = 6
MOST_ROUNDS = 4
_PAIR_S = 4.0  # of the budget for each pair; explanations and scenarios share the rest
_LEAST_PART_S = 30.0
_PREPARE_LIMIT_S = 120.0


class ClaimsRun:
    """One run. Everything goes to the record; what fails is recorded with its reason and the next follows."""

    def __init__(
        self, writer: RecordWriter, out: Path, deadline: Deadline, progress: ProgressSink, seed: int
    ) -> None:
        self.writer, self.out, self.deadline, self.progress, self.seed = writer, out, deadline, progress, seed

    def measure(self, claims: Sequence[Claim]) -> None:
        """All sources of the claims."""
        self.writer.write("claims", ids=[claim.id for claim in claims], seed=self.seed)
        self.writer.write("environment", environment=environment.capture())
        sources = [claim.source for claim in claims]
        pairs = list({source.key: source for source in sources if isinstance(source, Pair)}.values())
        parts = _parts(sources)
        stopped = "done"
        try:
            share = 1.0 if not parts else min(1.0, _PAIR_S * len(pairs) / self.deadline.budget_s)
            self._simulated([source for source in sources if isinstance(source, HitRate)])
            self._pairs(pairs, self.deadline.elapsed_s + share * self.deadline.left_s)
            for number, (name, wanted) in enumerate(parts):
                budget_s = max(_LEAST_PART_S, self.deadline.left_s / (len(parts) - number))
                self._part(name, wanted, budget_s)
        except KeyboardInterrupt:
            stopped = "interrupted"
        self.writer.write("end", stopped=stopped, seconds=self.deadline.elapsed_s)

    def _simulated(self, sources: Sequence[HitRate]) -> None:
        """Hit rates from the memory traffic of CUDA kernels on the emulator; a few seconds each."""
        for source in sources:
            self.progress.phase(source.key, "")
            try:
                self.writer.write("value", key=source.key, interval=hit_rate_ratio(source), record="")
            except Exception as error:
                self._missing([source.key], error)

    def _missing(self, keys: Sequence[str], error: Exception) -> None:
        """Record why there is no value: what this machine or the budget lacks, or what broke."""
        kind = "skipped" if isinstance(error, UserError) else "failure"
        said = (
            str(error) if isinstance(error, UserError | WorkerError) else f"{type(error).__name__}: {error}"
        )
        self.writer.write(kind, keys=list(keys), why=" ".join(said.split()))

    def _pairs(self, pairs: Sequence[Pair], until_s: float) -> None:
        for number, pair in enumerate(pairs):
            self.progress.phase(pair.key, f"pair {number + 1} of {len(pairs)}, {WORKERS} processes")
            now_s = self.deadline.elapsed_s
            self._pair(pair, now_s + max(0.0, until_s - now_s) / (len(pairs) - number))

    def _pair(self, pair: Pair, until_s: float) -> None:
        """A pair in processes of its own, as when its claim is asked for alone.

        In a process that other pairs used before, the scheduler places threads elsewhere, and the heap has grown.
        """
        workers: list[Worker] = []
        try:
            for number in range(WORKERS):
                workers.append(Worker(number))
                options = {"seed": self.seed + number}
                subject = "flashperf.claims.subject:VariantPair"
                workers[-1].ask("start", subject=subject, options=options, standard={}, flash={})
                checks = workers[-1].call("prepare", _PREPARE_LIMIT_S, **dataclasses.asdict(pair))
                self.writer.write("prepared", key=pair.key, worker=number, checks=checks)
            self._turns(pair, workers, until_s)
        except (WorkerError, UserError) as error:
            self._missing([pair.key], error)
        finally:
            for worker in workers:
                worker.stop()

    def _turns(self, pair: Pair, workers: Sequence[Worker], until_s: float) -> None:
        rng = np.random.default_rng(self.seed)
        for number in range(MOST_ROUNDS):
            for position in rng.permutation(len(workers)):
                if number and self.deadline.elapsed_s > until_s:
                    return
                worker = workers[position]
                block = worker.call("block", seed=int(rng.integers(1 << 31)))
                self.writer.write("block", key=pair.key, worker=worker.number, block=block)
            self._tell(f"round {number + 1}")

    def _part(self, name: str, wanted: Sequence[Source], budget_s: float) -> None:
        """An explanation or a scenario, into a folder of its own; what the claims want of it is noted here."""
        self.progress.phase(name, f"{budget_s:.0f} s")
        kind, _, which = name.partition(" ")
        folder = self.out / name.replace(" ", "-")
        values = _explained if kind == "explain" else _scenario
        try:
            for key, interval in values(which, folder, budget_s, self.seed, wanted).items():
                self.writer.write("value", key=key, interval=interval, record=folder.name)
        except Exception as error:
            self._missing([source.key for source in wanted], error)  # type: ignore[union-attr]
        if _interrupted(folder / "record.jsonl"):
            raise KeyboardInterrupt  # it kept what it had and returned; what is left of this run must end too
        self._tell(name)

    def _tell(self, detail: str) -> None:
        done = self.deadline.elapsed_s / max(self.deadline.budget_s, 1e-9)
        self.progress.update(min(done, 1.0), max(self.deadline.left_s, 0.0), [detail])


def hit_rate_ratio(source: HitRate) -> Interval:
    """The L2 hit rate of a whole call of one variant over the other's. Raises UserError where it can't be simulated."""
    from flashperf.gpus import gpu
    from flashperf.registry import mechanism
    from flashperf.traffic.mechanism import case_traffic, cuda_cases

    found, rates = mechanism(source.mechanism), []
    for variant in (source.other, source.base):
        (case,) = cuda_cases(found, [variant], sizes=dict(source.sizes))
        rates.append(case_traffic(found, case, gpu(source.gpu)).caches.l2_hit_rate)
    ratio = rates[0] / rates[1]
    return Interval(ratio, ratio, ratio)


def _interrupted(record: Path) -> bool:
    """Whether a part was ended by the user, as its own record says."""
    try:
        ends = list(read_records(record).of("end"))
    except (UserError, OSError, RecordError):
        return False
    return bool(ends) and ends[-1]["stopped"] == "interrupted"


def _parts(sources: Sequence[Source]) -> list[tuple[str, list[Source]]]:
    """(``explain a`` or ``scenario warmup``, the sources that it serves), each once."""
    found: dict[str, list[Source]] = {}
    for source in sources:
        if isinstance(source, ExplainMetric | ExplainShare):
            found.setdefault(f"explain {source.preset}", []).append(source)
        elif isinstance(source, ScenarioTotal):
            found.setdefault(f"scenario {source.scenario}", []).append(source)
    return list(found.items())


def _explained(
    preset: str, out: Path, budget_s: float, seed: int, wanted: Sequence[Source]
) -> dict[str, Interval]:
    from flashperf.explain import explain_pipeline

    explanation = explain_pipeline(flash=preset, budget_s=budget_s, seed=seed, out=out)
    return explained_values(explanation, wanted)


def explained_values(explanation: Explanation, wanted: Sequence[Source]) -> dict[str, Interval]:
    """What the sources want of an explanation; what it does not have is left out."""
    ratios = {metric.name: metric.ratio for metric in explanation.metrics}
    alone = {share.switch: share.alone for share in explanation.attribution.shares if share.active}
    values: dict[str, Interval | None] = {}
    for source in wanted:
        if isinstance(source, ExplainMetric):
            values[source.key] = ratios.get(source.metric)
        elif isinstance(source, ExplainShare):
            values[source.key] = alone.get(source.switch)
    return {key: interval for key, interval in values.items() if interval is not None}


def _scenario(
    name: str, out: Path, budget_s: float, seed: int, wanted: Sequence[Source]
) -> dict[str, Interval]:
    from flashperf.scenarios.registry import scenario_named
    from flashperf.scenarios.run import read_report, run_scenario

    path = run_scenario(scenario_named(name), out, budget_s, seed, NullProgress())
    totals = read_report(path).findings.totals
    return {
        source.key: total.ratio
        for source in wanted
        for total in totals
        if isinstance(source, ScenarioTotal) and total.what.startswith(source.total)
    }


def run_claims(
    claims: Sequence[Claim],
    out: Path,
    budget_s: float,
    seed: int,
    progress: ProgressSink,
    began: float | None = None,
) -> Path:
    """Measure into ``out``/record.jsonl and return its path. Raises UserError for a bad budget or seed."""
    if not 0 < budget_s < float("inf"):
        raise UserError(f"the budget must be a positive number of seconds, not {budget_s:g}")
    if seed < 0:
        raise UserError(f"the seed must not be negative, and is {seed}")
    path = out / "record.jsonl"
    with RecordWriter(path) as writer:
        ClaimsRun(writer, out, Deadline(budget_s, began), progress, seed).measure(claims)
    return path
