"""Names for the shell to complete (``flashperf --install-completion``). Nothing is imported until one is asked for."""

from __future__ import annotations

from collections.abc import Iterable


def mechanisms(incomplete: str) -> list[str]:
    """Mechanisms that begin so."""
    from flashperf import registry

    return _beginning(incomplete, registry.names())


def cases(incomplete: str) -> list[str]:
    """Ids of public reports."""
    from flashperf.cases.registry import all_cases

    return _beginning(incomplete, (case.id for case in all_cases()))


def claims(incomplete: str) -> list[str]:
    """Ids of the documents' claims."""
    from flashperf.claims.catalogue import CLAIMS

    return _beginning(incomplete, (claim.id for claim in CLAIMS))


def scenarios(incomplete: str) -> list[str]:
    """What ``flashperf scenario`` measures."""
    from flashperf.scenarios.registry import all_scenarios

    return _beginning(incomplete, (scenario.name for scenario in all_scenarios()))


def pipeline_scenarios(incomplete: str) -> list[str]:
    """What the pipeline runs."""
    from flashperf.pipeline.scenario import SCENARIOS

    return _beginning(incomplete, SCENARIOS)


def backends(incomplete: str) -> list[str]:
    """Where kernels run."""
    from flashperf.backends import BACKENDS

    return _beginning(incomplete, BACKENDS)


def gpus(incomplete: str) -> list[str]:
    """GPUs that predictions know."""
    from flashperf.gpus import GPUS

    return _beginning(incomplete, GPUS)


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
