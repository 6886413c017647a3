"""The pytest layer: benches of a line each, whose samples go into pytest-benchmark's own records.

    from flashperf.pytest_plugin import bench_cases
    test_tiling = bench_cases("tiling")  # or bench_cases(Mechanism(...)), from any repository

pytest-benchmark keeps its options and its tables: samples reach it through its public timer and ``pedantic``.
This module is imported in every pytest run where flashperf is installed, so it imports nothing heavy.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from flashperf.benching.gate_hooks import GATE, GateHooks
from flashperf.benching.options import MARKERS, add_options
from flashperf.benching.replay import REPLAY, replay

if TYPE_CHECKING:
    from flashperf.benching.session import BenchSession
    from flashperf.records import Case, Mechanism

END_TO_END_SHARE = 0.5  # of the time of all cases: a third of the budget

_SESSION: pytest.StashKey[Any] = pytest.StashKey()
_FIXTURES = ("flashperf_bench", "flashperf_end_to_end")


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser.getgroup("flashperf", "flashperf benches"))


def pytest_configure(config: pytest.Config) -> None:
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    config.pluginmanager.register(GateHooks(), "flashperf-gate")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Our samples must go through our timer: the marker that a bench has keeps its other settings."""
    if any(name in _FIXTURES for name in getattr(item, "fixturenames", ())):
        marker = item.get_closest_marker("benchmark")
        settings = dict(marker.kwargs) if marker else {}
        settings.setdefault("group", _group(item))
        item.add_marker(pytest.mark.benchmark(**settings | {"timer": REPLAY}), append=False)


def _group(item: pytest.Item) -> str | None:
    """Variants of one mechanism at one size share a table."""
    values = getattr(getattr(item, "callspec", None), "params", {})
    names = [str(values[name]) for name in ("mechanism", "backend", "dtype", "sizes") if name in values]
    return " ".join(names) or None


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(obj: object) -> list[pytest.Item] | None:
    """Where functions called bench_* are tests, the two that make benches are not meant."""
    return [] if obj is bench_cases or obj is bench_end_to_end else None


def pytest_collection_finish(session: pytest.Session) -> None:
    """After -k and -m: only what will run gets a part of the budget."""
    weights = {}
    for item in session.items:
        names = getattr(item, "fixturenames", ())
        if "flashperf_bench" in names:
            weights[item.nodeid] = 1.0
    end_to_end = [i.nodeid for i in session.items if "flashperf_end_to_end" in getattr(i, "fixturenames", ())]
    if not weights and not end_to_end:
        return
    if end_to_end:  # measured once, by the first of them
        weights[end_to_end[0]] = max(1.0, END_TO_END_SHARE * len(weights))
    benches = _session(session.config)
    benches.budget.plan(weights, end_to_end[0] if end_to_end else "")
    benches.root = str(session.config.rootpath)
    benches.files = tuple(
        dict.fromkeys(
            str(i.path) for i in session.items if "flashperf_bench" in getattr(i, "fixturenames", ())
        )
    )


def pytest_sessionfinish(session: pytest.Session) -> None:
    """No worker outlives the run."""
    if _SESSION in session.config.stash:
        session.config.stash[_SESSION].close()


def _session(config: pytest.Config) -> BenchSession:
    if _SESSION not in config.stash:
        from flashperf.benching.session import BenchSession, Budget

        budget = Budget(config.getoption("--flashperf-budget"))
        config.stash[_SESSION] = BenchSession(
            budget, config.getoption("--flashperf-cache"), config.getoption("--flashperf-processes")
        )
    return config.stash[_SESSION]


@pytest.fixture
def flashperf_bench(benchmark: Any, request: pytest.FixtureRequest) -> Callable[[Mechanism, Case], None]:
    """Check a case, measure it against its standard, and hand its samples to pytest-benchmark."""
    session, item = _session(request.config), request.node.nodeid

    def bench(mechanism: Mechanism, case: Case) -> None:
        from flashperf.benching.rows import extra_info
        from flashperf.errors import UserError
        from flashperf.measure import bind_case

        reason = session.why_skip(mechanism, case)
        if reason:
            session.budget.drop(item)
            pytest.skip(f"{case.variant} on {case.backend}: {reason}")
        problem = ""
        try:
            if benchmark.disabled:
                benchmark.pedantic(session.check_only(mechanism, case).call)
                return
            row, standard = session.measure(mechanism, case, item, _marked(request.node, "flashperf_canary"))
        except UserError as error:
            problem = str(error)
        if problem:
            _fail(benchmark, problem)
        info = extra_info(mechanism, row, standard)
        benchmark.extra_info.update(info)
        if GATE in request.config.stash:
            request.config.stash[GATE].add(item, info, _marked(request.node, "flashperf_gate"))
        calls = row.measurement.calls_per_sample
        durations_s = [sample_s * calls for sample_s in row.measurement.samples_s]
        replay(benchmark, durations_s, calls, lambda: bind_case(mechanism, case).call)

    return bench


@pytest.fixture
def flashperf_end_to_end(benchmark: Any, request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Measure the pipeline once and hand the time of a task of one variant to pytest-benchmark."""
    session, item = _session(request.config), request.node.nodeid

    def end_to_end(variant: str) -> None:
        from flashperf.benching.session import metric_of
        from flashperf.errors import UserError
        from flashperf.store import to_json

        if benchmark.disabled:
            pytest.skip("benchmarks are disabled: the end-to-end run only measures; tests check its numbers")
        problem = ""
        try:
            explanation = session.explain(item)
            task_s = metric_of(explanation, variant)
        except UserError as error:
            problem = str(error)
        if problem:
            _fail(benchmark, problem)
        levels = dict(getattr(explanation, variant))
        benchmark.extra_info.update(
            to_json({"levels": levels, "task_s": task_s, "subject": explanation.subject})
        )
        benchmark.extra_info["attribution"] = to_json(explanation.attribution)
        replay(benchmark, [task_s.value], 1, lambda: lambda: None)

    return end_to_end


def _marked(item: pytest.Item, name: str) -> str:
    """The argument of a marker, or empty."""
    marker = item.get_closest_marker(name)
    return str(marker.args[0]) if marker and marker.args else ""


def _fail(benchmark: Any, message: str) -> NoReturn:
    """Fail without a traceback, and through the fixture: pytest-benchmark then drops this record."""
    from flashperf.errors import UserError

    def fail() -> None:
        raise UserError(message)

    with contextlib.suppress(UserError):
        benchmark.pedantic(fail)
    pytest.fail(message, pytrace=False)


def bench_cases(
    mechanism: str | Mechanism,
    *,
    backends: Iterable[str] | None = None,
    dtypes: Iterable[str] | None = None,
    variants: Iterable[str] | None = None,
) -> Callable[..., None]:
    """A test function that benches every variant of a mechanism at its bench sizes.

    ``mechanism`` is a name or a Mechanism object; the others select (default: all backends and variants, the
    mechanism's first dtype). What can't run here is skipped with its reason.
    """
    from flashperf import registry
    from flashperf.benching.session import resolve
    from flashperf.errors import UserError

    try:
        found = resolve(mechanism)
        cases = registry.cases(found, "bench", backends, dtypes, variants)
    except UserError as error:
        pytest.fail(str(error), pytrace=False)
    by_key = {(c.variant, c.backend, c.dtype, c.id.rpartition("/")[2]): c for c in cases}

    @pytest.mark.parametrize(
        ("mechanism", "variant", "backend", "dtype", "sizes"),
        [(found.name, *key) for key in by_key],
        ids=[case.id for case in by_key.values()],
    )
    def bench(
        flashperf_bench: Callable[[Mechanism, Case], None],
        mechanism: str,
        variant: str,
        backend: str,
        dtype: str,
        sizes: str,
    ) -> None:
        flashperf_bench(found, by_key[variant, backend, dtype, sizes])

    return bench


def bench_end_to_end() -> Callable[..., None]:
    """A test function for the pipeline, Standard and Flash; the summary closes with the attribution table."""

    @pytest.mark.benchmark(group="end to end")
    @pytest.mark.parametrize("variant", ["standard", "flash"])
    def bench(flashperf_end_to_end: Callable[[str], None], variant: str) -> None:
        flashperf_end_to_end(variant)

    return bench


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """After pytest-benchmark's own tables: variants against their standards, the attribution, the verdicts."""
    sections: list[tuple[str, list[str]]] = []
    if _SESSION in config.stash:
        from flashperf.benching.summary import summary_lines

        sections += summary_lines(config.stash[_SESSION])
    if GATE in config.stash:
        sections += config.stash[GATE].sections()
    for title, lines in sections:
        terminalreporter.section(title)
        for line in lines:
            terminalreporter.write_line(line)
