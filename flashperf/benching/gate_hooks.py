"""pytest hooks of the gate: what it must hear of a run, and the exit code. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from flashperf.benching.gating import GateState

GATE: pytest.StashKey[Any] = pytest.StashKey()


def _gate(config: pytest.Config) -> GateState:
    if GATE not in config.stash:
        from flashperf.benching.gating import GateState

        config.stash[GATE] = GateState()
    return config.stash[GATE]


class GateHooks:
    """A plugin of its own: nothing here does anything without --benchmark-compare."""

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_compare_machine_info(
        self, config: pytest.Config, benchmarksession: Any, compared_benchmark: dict[str, Any]
    ) -> None:
        """pytest-benchmark has loaded a saved run to compare with: the gate judges against the same."""
        state = _gate(config)
        state.baselines.append(compared_benchmark)
        state.storage = benchmarksession.storage

    def pytest_deselected(self, items: Iterable[pytest.Item]) -> None:
        """What was left out by -k or -m isn't missing."""
        for item in items:
            if GATE in item.config.stash:
                _gate(item.config).not_selected.add(item.nodeid)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
        """Benches that raised or were skipped are named, with the reason."""
        outcome = yield
        report = outcome.get_result()
        if GATE not in item.config.stash or "flashperf_bench" not in getattr(item, "fixturenames", ()):
            return
        state = _gate(item.config)
        said = " ".join(str(call.excinfo.value).split())[:300] if call.excinfo else ""
        if report.failed:
            state.failed[item.nodeid] = said
        elif report.skipped:
            state.skipped[item.nodeid] = said

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Judges, and turns a pass into the gate's exit code; a failed run keeps pytest's."""
        config = session.config
        if GATE not in config.stash or config.getoption("benchmark_disable", False):
            return
        from flashperf.benching.gating import finish

        code = finish(config.stash[GATE], config)
        if exitstatus == pytest.ExitCode.OK and code:
            session.exitstatus = code
