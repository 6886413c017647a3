"""The phases of explaining the language model: beside the cycles its memory, quality, calls and their times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flashperf.attribution import CostModel
from flashperf.explain import planned
from flashperf.explain.packed import pack_counts
from flashperf.explain.run import REPORT_S, Phases
from flashperf.workers import Worker, WorkerPool

QUALITY_BYTES = 8192
_PROBES = 3  # fresh processes per variant whose peak memory is read


class PipelinePhases(Phases):
    """The language model: its calls are counted, timed alone, and its quality is evaluated."""

    subject = "flashperf.pipeline.subject:PipelineSubject"
    verifies = True

    def __init__(
        self,
        scenario: str,
        model: str,
        standard: Mapping[str, str],
        flash: Mapping[str, str],
        backend: str = "cpu",
        **common: Any,
    ) -> None:
        from flashperf.pipeline import adaptive
        from flashperf.pipeline.models import model_config
        from flashperf.pipeline.scenario import scenario as scenario_of

        self.scenario, self.model, self.backend = scenario_of(scenario, common["seed"]), model, backend
        config = model_config(model)
        asked = adaptive.asks_for_rule(standard, flash)
        self.rule = adaptive.measured_rule(config, backend) if asked else None
        if self.rule is not None:
            standard, flash = (adaptive.with_rule(levels, self.rule) for levels in (standard, flash))
        self.planner = planned.Planner(config, self.scenario)
        super().__init__(planned.find_active(self.planner, standard, flash), **common)
        self.options = {"model": model, "scenario": scenario, "seed": self.seed, "backend": backend}

    def describe(self) -> dict[str, Any]:
        from flashperf.energy import EnergyCounter
        from flashperf.pipeline.models import has_quality

        counter = EnergyCounter()
        where = "" if self.backend == "cpu" else f", on {self.backend}"
        return {
            "subject": f"pipeline {self.model}, scenario {self.scenario.name}{where}",
            "switches": self.switches,
            "generated_tokens": self.scenario.continuation.size,
            "real_tokens": self.scenario.tokens,
            "adaptive_rule": self.rule,
            "no_quality": "" if has_quality(self.model) else "random weights have no quality",
            "no_energy": counter.reason,
        }

    def probe(self) -> None:
        """Peak memory of fresh processes, and quality; two processes at a time, nothing is timed."""
        from flashperf.pipeline.models import has_quality

        everything = (1 << sum(switch.active for switch in self.switches)) - 1
        masks = [0, everything] * _PROBES
        for number in range(0, len(masks), 2):
            pool = WorkerPool(2, self.subject, self.options, self.standard, self.flash)
            with pool:
                self._activate(pool)
                for worker, mask in zip(pool.workers, masks[number : number + 2], strict=True):
                    worker.send("call", method="peak_memory", arguments={"mask": mask})
                for worker, mask in zip(pool.workers, masks[number : number + 2], strict=True):
                    self.writer.write("probe", mask=mask, **worker.receive())
                if number or not has_quality(self.model):
                    continue
                for worker, mask in zip(pool.workers, masks, strict=False):
                    arguments = {"mask": mask, "n_bytes": QUALITY_BYTES}
                    worker.send("call", method="held_out", arguments=arguments)
                for worker, mask in zip(pool.workers, masks, strict=False):
                    self.writer.write("quality", mask=mask, n_bytes=QUALITY_BYTES, **worker.receive())

    def isolate(self, pool: WorkerPool) -> CostModel | None:
        """Count the calls of all mixtures; time each kind alone on every worker; profile both variants."""
        self.progress.phase("isolated kernels", "each kind of call by itself, warm and with L2 evicted")
        counts = planned.count_all(self.planner, self.switches)
        self.writer.write("counts", **pack_counts(counts))
        cover, everything = counts.cover(), len(counts) - 1
        medians = {}
        for number, worker in enumerate(pool.workers):
            if number and self.deadline.left_s < REPORT_S:
                break  # the shares need some workers' times, only the prediction needs all
            if number % 2 == 0:
                self._bind(pool.workers[number : number + 2], [*cover, 0, everything])
            times = worker.call("isolated", masks=cover)
            self.writer.write("isolated", worker=worker.number, times=times)
            medians[worker.number] = planned.isolated_medians(times, "warm")
            for mask in (0, everything):
                profile = worker.call("profile", mask=mask)
                self.writer.write("profile", worker=worker.number, mask=mask, **profile)
            self.progress.update(
                min(self.deadline.elapsed_s / self.deadline.budget_s, 1.0),
                max(self.deadline.left_s, 0.0),
                [f"isolated kernels, worker {worker.number + 1} of {len(pool.workers)}"],
            )
        return planned.cost_model(counts, medians, everything.bit_length())

    def _bind(self, workers: Sequence[Worker], masks: Sequence[int]) -> None:
        """Fresh memory for some workers, and mixtures bound in it, by all at once since nothing is timed."""
        for worker in workers:
            worker.send("rebuild", seed=worker.number)
            worker.send("call", method="bind", arguments={"masks": list(masks)})
        for worker in workers:
            worker.receive()
            worker.receive()
