"""Why is Flash slower than Standard? Measured end to end, split over the switches, with intervals."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flashperf.errors import UserError
from flashperf.explain.factory import Factory, target_of
from flashperf.explain.own import FactoryPhases
from flashperf.explain.pipeline_phases import PipelinePhases
from flashperf.explain.run import replay
from flashperf.progress import NullProgress, ProgressSink
from flashperf.records import Explanation

__all__ = ["explain", "explain_factory", "explain_pipeline", "replay"]


def explain_pipeline(
    scenario: str = "single",
    model: str = "small",
    standard: str = "",
    flash: str = "a",
    budget_s: float = 60.0,
    seed: int = 0,
    backend: str = "cpu",
    out: Path | None = None,
    progress: ProgressSink | None = None,
    began: float | None = None,
) -> Explanation:
    """Explain the built-in language model: ``flash`` against ``standard``, both ``a``, ``b`` or ``switch=level,...``.

    budget_s is wall time, from ``began`` (a ``time.monotonic()`` value; now if not given). The record of every
    raw sample goes to ``out``/record.jsonl. Raises UserError for names that are not known, with the nearest.
    """
    from flashperf.backends import backend as backend_of
    from flashperf.pipeline.engines import ENGINES
    from flashperf.pipeline.switches import parse_flash, parse_levels

    why_not = backend_of(backend).why_not() or ("" if backend in ENGINES else "it has no pipeline")
    if why_not:
        hint = " (--gpu h100 gives a prediction for one)" if backend == "cuda" else ""
        raise UserError(f"nothing can be measured on the {backend} backend here: {why_not}{hint}")
    phases = PipelinePhases(
        scenario,
        model,
        parse_levels(standard),
        parse_flash(flash),
        backend,
        budget_s=budget_s,
        seed=seed,
        out=out or Path(tempfile.mkdtemp(prefix="flashperf-")),
        progress=progress or NullProgress(),
        began=began,
    )
    return phases.measure()


def explain_factory(
    target: str,
    standard: Mapping[str, str],
    flash: Mapping[str, str],
    budget_s: float = 60.0,
    seed: int = 0,
    out: Path | None = None,
    progress: ProgressSink | None = None,
    began: float | None = None,
) -> Explanation:
    """Explain anybody's pipeline: ``target`` is ``MODULE:FACTORY`` or ``FILE.py:FACTORY``.

    ``factory(**levels)`` returns a callable without arguments that does all the work of that mixture. The floating
    arrays that it returns (NumPy, torch, CuPy, nested or not) are compared with Standard's before the mixture is timed.

    Raises UserError if a mixture fails, or if its result differs by more than a tenth of the norm of Standard's
    (``same_result.LIMIT``); what was measured by then is in ``out``/record.jsonl.
    """
    phases = FactoryPhases(
        target,
        standard,
        flash,
        budget_s=budget_s,
        seed=seed,
        out=out or Path(tempfile.mkdtemp(prefix="flashperf-")),
        progress=progress or NullProgress(),
        began=began,
    )
    return phases.measure()


def explain(
    factory: Factory | str, *, standard: Mapping[str, str], flash: Mapping[str, str], **options: Any
) -> Explanation:
    """Split the slowdown of ``factory(**flash)()`` against ``factory(**standard)()`` over the switches.

    The factory must be importable by worker processes: a function at the top level of a file. The floating arrays
    that a mixture returns are compared with Standard's before it is timed. ``options``: budget_s (wall seconds),
    seed, out (folder of the record). Raises UserError where workers can't load it, where a mixture fails, and where
    its result is off by more than a tenth of the norm of Standard's.
    """
    if not isinstance(factory, str) and not callable(factory):
        raise UserError(f"a factory is a function or MODULE:FACTORY, not a {type(factory).__name__}")
    target = factory if isinstance(factory, str) else target_of(factory)
    return explain_factory(target, standard, flash, **options)
